// nodejs-websocket, reached through Node's http server. Environment: HOST, PORT; one thread, THREADS is ignored.
'use strict'

const http = require('http')
const websocket = require('nodejs-websocket')

if (process.argv[2] === '--version') {
  console.log(`nodejs-websocket ${require('nodejs-websocket/package.json').version}, node ${process.version}`)
  process.exit()
}

// The package refuses to buffer more than 2 MiB; a message of 16 MiB may have others behind it.
websocket.setMaxBufferLength(32 * 1024 * 1024)

const endpoints = { '/echo': echo, '/ping': ping, '/push': push }
const websockets = websocket.createServer(connection => {
  // Without a listener an error of one connection would end the process.
  connection.on('error', () => {})
  const endpoint = endpoints[connection.path]
  if (endpoint) endpoint(connection)
  else connection.close(1008)
})

const server = http.createServer({ keepAliveTimeout: 0, headersTimeout: 0, requestTimeout: 0 }, (request, response) => {
  const { pathname, searchParams } = new URL(request.url, 'http://localhost')
  const size = searchParams.get('size')
  if (pathname !== '/doc' || !/^\d+$/.test(size)) {
    response.writeHead(pathname === '/doc' ? 400 : 404).end()
    return
  }
  response.writeHead(200, { 'Content-Type': 'text/html', 'Content-Length': size })
  response.end(Buffer.alloc(Number(size), '.'))
})

// The package owns a net server and reads the handshake itself: give it the socket as if it were new, with the request put back.
server.on('upgrade', (request, socket, head) => {
  const lines = [`${request.method} ${request.url} HTTP/${request.httpVersion}`]
  for (let i = 0; i < request.rawHeaders.length; i += 2) {
    lines.push(`${request.rawHeaders[i]}: ${request.rawHeaders[i + 1]}`)
  }
  // http's sockets stay half open after the client's FIN, net's do not; the package counts on the latter and would never close them.
  socket.allowHalfOpen = false
  socket.unshift(Buffer.concat([Buffer.from(lines.join('\r\n') + '\r\n\r\n', 'latin1'), head]))
  websockets.socket.emit('connection', socket)
})

server.listen(Number(process.env.PORT), process.env.HOST)

function echo (connection) {
  connection.on('text', text => connection.sendText(text))
  connection.on('binary', stream => {
    const chunks = []
    stream.on('data', chunk => chunks.push(chunk))
    stream.on('end', () => connection.sendBinary(Buffer.concat(chunks)))
  })
}

function ping (connection) {
  connection.on('text', text => {
    if (text === 'Ping') connection.sendText('Pong')
  })
}

const members = new Set()

function push (connection) {
  members.add(connection)
  connection.on('close', () => members.delete(connection))
  connection.on('text', text => {
    if (!text.startsWith('broadcast ')) return
    const token = text.slice('broadcast '.length)
    for (const member of members) member.sendText(`${epochMicroseconds()} ${token}`)
  })
}

function epochMicroseconds () {
  return Math.round((performance.timeOrigin + performance.now()) * 1000)
}
