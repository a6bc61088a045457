// Socket.IO at Node's http server. Environment: HOST, PORT; one thread, THREADS is ignored.
'use strict'

const http = require('http')
const { Server } = require('socket.io')

if (process.argv[2] === '--version') {
  console.log(`socket.io ${require('socket.io/package.json').version}, ws ${require('ws/package.json').version}, node ${process.version}`)
  process.exit()
}

const server = http.createServer()
const io = new Server(server)

io.on('connection', socket => {
  const { room } = socket.handshake.auth
  if (room !== undefined) socket.join(room)

  socket.on('echo', (data, acknowledge) => acknowledge?.(data))
  socket.on('publish', data => io.to(room).emit('publish', data))
})

server.listen(Number(process.env.PORT), process.env.HOST)
