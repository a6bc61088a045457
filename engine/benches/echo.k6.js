// Echo in k6: a virtual user keeps one connection with DEPTH messages in flight and sends the next when one returns.
import { WebSocket } from 'k6/websockets';
import { Counter } from 'k6/metrics';

const seconds = Number(__ENV.SECONDS);
const depth = Number(__ENV.DEPTH);
const text = 'a'.repeat(Number(__ENV.BYTES));
const wrong = new Counter('wrong');

export const options = {
  scenarios: {
    echo: { executor: 'per-vu-iterations', vus: Number(__ENV.CONNECTIONS), iterations: 1, maxDuration: `${seconds + 30}s` },
  },
};

export default function () {
  const socket = new WebSocket(__ENV.URL);
  socket.onopen = () => {
    setTimeout(() => socket.close(), seconds * 1000);
    for (let sent = 0; sent < depth; sent++) socket.send(text);
  };
  socket.onmessage = () => socket.send(text);
  socket.onerror = () => wrong.add(1);
}

export function handleSummary({ metrics }) {
  const count = (name) => (metrics[name] ? metrics[name].values.count : 0);
  const said = { messages: count('ws_msgs_received'), connections: count('ws_sessions'), wrong: count('wrong') };
  return { stdout: `${JSON.stringify(said)}\n` };
}
