// Calls in k6: a virtual user keeps one connection with one call in flight, or sends one every PERIOD seconds.
import { WebSocket } from 'k6/websockets';
import { Counter, Trend } from 'k6/metrics';

const { URL, SERVER, CONTENT } = __ENV;
const seconds = Number(__ENV.SECONDS);
const period = Number(__ENV.PERIOD);
const answered = new Counter('answered');
const latency = new Trend('latency', true);

export const options = {
  scenarios: {
    calls: { executor: 'per-vu-iterations', vus: Number(__ENV.CONNECTIONS), iterations: 1, maxDuration: `${seconds + 30}s` },
  },
  summaryTrendStats: ['p(50)', 'p(99)'],
};

export default function () {
  const socket = new WebSocket(URL);
  const sent = {};
  let number = 0;

  function call() {
    sent[++number] = Date.now();
    socket.send(
      SERVER === 'socketio'
        ? `42${number}["echo","${CONTENT}"]`
        : `{"jsonrpc":"2.0","id":${number},"method":"echo","params":["${CONTENT}"]}`,
    );
  }

  function begin() {
    setTimeout(() => socket.close(), seconds * 1000);
    if (period) setInterval(call, period * 1000);
    else call();
  }

  function returned(id) {
    answered.add(1);
    latency.add(Date.now() - sent[id]);
    delete sent[id];
    if (!period) call();
  }

  socket.onopen = () => SERVER === 'socketio' || begin();
  socket.onmessage = ({ data }) => {
    if (SERVER !== 'socketio') returned(JSON.parse(data).id);
    else if (data.startsWith('43')) returned(parseInt(data.slice(2)));
    else if (data.startsWith('0')) socket.send('40');
    else if (data.startsWith('40')) begin();
    else if (data === '2') socket.send('3');
  };
}

export function handleSummary({ metrics }) {
  const times = metrics.latency ? metrics.latency.values : {};
  return {
    stdout: `${JSON.stringify({ answered: metrics.answered?.values.count ?? 0, p50_ms: times['p(50)'], p99_ms: times['p(99)'] })}\n`,
  };
}
