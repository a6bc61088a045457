// ws, at the upgrades of Node's http server. Environment: HOST, PORT, TLS_CERT, TLS_KEY, DEFLATE; one thread, THREADS is ignored.
'use strict'

const fs = require('fs')
const http = require('http')
const https = require('https')
const { WebSocketServer } = require('ws')

if (process.argv[2] === '--version') {
  console.log(`ws ${require('ws/package.json').version}, node ${process.version}`)
  process.exit()
}

const { TLS_CERT, TLS_KEY, DEFLATE } = process.env
const timeouts = { keepAliveTimeout: 0, headersTimeout: 0, requestTimeout: 0 }
const server = TLS_CERT
  ? https.createServer({ ...timeouts, cert: fs.readFileSync(TLS_CERT), key: fs.readFileSync(TLS_KEY) }, document)
  : http.createServer(timeouts, document)

function document (request, response) {
  const { pathname, searchParams } = new URL(request.url, 'http://localhost')
  const size = searchParams.get('size')
  if (pathname !== '/doc' || !/^\d+$/.test(size)) {
    response.writeHead(pathname === '/doc' ? 400 : 404).end()
    return
  }
  response.writeHead(200, { 'Content-Type': 'text/html', 'Content-Length': size })
  response.end(Buffer.alloc(Number(size), '.'))
}

const endpoints = { '/echo': echo, '/ping': ping, '/push': push }
const websockets = new WebSocketServer({ noServer: true, perMessageDeflate: Boolean(DEFLATE) })

server.on('upgrade', (request, socket, head) => {
  const endpoint = endpoints[request.url]
  if (!endpoint) {
    socket.destroy()
    return
  }
  websockets.handleUpgrade(request, socket, head, websocket => {
    // Without a listener an error of one connection would end the process.
    websocket.on('error', () => {})
    endpoint(websocket)
  })
})

server.listen(Number(process.env.PORT), process.env.HOST)

function echo (websocket) {
  websocket.on('message', (data, isBinary) => websocket.send(data, { binary: isBinary }))
}

function ping (websocket) {
  websocket.on('message', (data, isBinary) => {
    if (!isBinary && data.toString() === 'Ping') websocket.send('Pong')
  })
}

const members = new Set()

function push (websocket) {
  members.add(websocket)
  websocket.on('close', () => members.delete(websocket))
  websocket.on('message', (data, isBinary) => {
    const text = data.toString()
    if (isBinary || !text.startsWith('broadcast ')) return
    const token = text.slice('broadcast '.length)
    for (const member of members) member.send(`${epochMicroseconds()} ${token}`)
  })
}

function epochMicroseconds () {
  return Math.round((performance.timeOrigin + performance.now()) * 1000)
}
