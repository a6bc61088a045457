// Bun's own server. Environment: HOST, PORT, TLS_CERT, TLS_KEY, DEFLATE; one thread, THREADS is ignored.

if (process.argv[2] === '--version') {
  console.log(`bun ${Bun.version}, revision ${Bun.revision.slice(0, 9)}`)
  process.exit()
}

const { TLS_CERT, TLS_KEY, DEFLATE } = process.env
const compress = Boolean(DEFLATE)
const members = new Set()

/** What each endpoint does with a message: a string is a text, a Buffer a binary. */
const endpoints = {
  '/echo': (websocket, message) => websocket.send(message, compress),
  '/ping': (websocket, message) => {
    if (message === 'Ping') websocket.send('Pong')
  },
  '/push': (_, message) => {
    if (typeof message !== 'string' || !message.startsWith('broadcast ')) return
    const token = message.slice('broadcast '.length)
    for (const member of members) member.send(`${epochMicroseconds()} ${token}`)
  }
}

Bun.serve({
  hostname: process.env.HOST,
  port: process.env.PORT,
  idleTimeout: 0,
  tls: TLS_CERT && { cert: Bun.file(TLS_CERT), key: Bun.file(TLS_KEY) },
  fetch (request, server) {
    const { pathname, searchParams } = new URL(request.url)
    if (pathname === '/doc') return doc(searchParams.get('size'))
    const receive = endpoints[pathname]
    if (!receive) return new Response(null, { status: 404 })
    if (server.upgrade(request, { data: { receive } })) return
    return new Response(null, { status: 400 })
  },
  websocket: {
    idleTimeout: 0,
    perMessageDeflate: compress,
    open (websocket) {
      if (websocket.data.receive === endpoints['/push']) members.add(websocket)
    },
    message (websocket, message) {
      websocket.data.receive(websocket, message)
    },
    close (websocket) {
      members.delete(websocket)
    }
  }
})

function doc (size) {
  if (!/^\d+$/.test(size)) return new Response(null, { status: 400 })
  return new Response(Buffer.alloc(Number(size), '.'), { headers: { 'Content-Type': 'text/html' } })
}

function epochMicroseconds () {
  return Math.round((performance.timeOrigin + performance.now()) * 1000)
}
