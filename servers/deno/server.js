// Deno's own server and WebSocket. Environment: HOST, PORT, TLS_CERT, TLS_KEY; one thread of JavaScript, THREADS is
// ignored.

if (Deno.args[0] === '--version') {
  console.log(`deno ${Deno.version.deno}, v8 ${Deno.version.v8}`)
  Deno.exit()
}

const endpoints = { '/echo': echo, '/ping': ping, '/push': push }

const certificate = Deno.env.get('TLS_CERT')
const tls = certificate && { cert: Deno.readTextFileSync(certificate), key: Deno.readTextFileSync(Deno.env.get('TLS_KEY')) }

Deno.serve({ hostname: Deno.env.get('HOST'), port: Number(Deno.env.get('PORT')), ...tls }, request => {
  const { pathname, searchParams } = new URL(request.url)
  if (pathname === '/doc') return doc(searchParams.get('size'))
  const endpoint = endpoints[pathname]
  if (!endpoint || request.headers.get('upgrade') !== 'websocket') {
    return new Response(null, { status: endpoint ? 400 : 404 })
  }
  const { socket, response } = Deno.upgradeWebSocket(request, { idleTimeout: 0 })
  // Without it every binary message would become a Blob, to be read asynchronously and out of order.
  socket.binaryType = 'arraybuffer'
  endpoint(socket)
  return response
})

function doc (size) {
  if (!/^\d+$/.test(size)) return new Response(null, { status: 400 })
  return new Response(new Uint8Array(Number(size)).fill(0x2e), { headers: { 'Content-Type': 'text/html' } })
}

function echo (socket) {
  socket.addEventListener('message', event => send(socket, event.data))
}

function ping (socket) {
  socket.addEventListener('message', event => {
    if (event.data === 'Ping') send(socket, 'Pong')
  })
}

/** A message may still arrive while its connection is closing; to send then would throw. */
function send (socket, data) {
  if (socket.readyState === WebSocket.OPEN) socket.send(data)
}

/** Each member with the tokens that were broadcast before its socket was open. */
const members = new Map()

// It joins before the 101 is sent: whoever has seen that is a member. 'open' comes some time after.
function push (socket) {
  members.set(socket, [])
  socket.addEventListener('open', () => {
    for (const token of members.get(socket)) pushTo(socket, token)
    members.set(socket, [])
  })
  socket.addEventListener('close', () => members.delete(socket))
  socket.addEventListener('message', ({ data }) => {
    if (typeof data !== 'string' || !data.startsWith('broadcast ')) return
    const token = data.slice('broadcast '.length)
    for (const [member, waiting] of members) {
      if (member.readyState === WebSocket.CONNECTING) waiting.push(token)
      else pushTo(member, token)
    }
  })
}

function pushTo (member, token) {
  send(member, `${Math.round((performance.timeOrigin + performance.now()) * 1000)} ${token}`)
}
