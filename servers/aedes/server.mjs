// Aedes on ws. Environment: HOST, PORT; one thread, THREADS is ignored.
import { createRequire } from 'node:module'
import { Aedes } from 'aedes'
import { WebSocketServer, createWebSocketStream } from 'ws'

if (process.argv[2] === '--version') {
  const of = name => `${name} ${createRequire(import.meta.url)(`./node_modules/${name}/package.json`).version}`
  console.log(`${of('aedes')}, ${of('ws')}, node ${process.version}`)
  process.exit()
}

const broker = await Aedes.createBroker()
const websockets = new WebSocketServer({ host: process.env.HOST, port: Number(process.env.PORT) })

websockets.on('connection', (websocket, request) => {
  broker.handle(createWebSocketStream(websocket), request)
})
