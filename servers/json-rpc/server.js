// json-rpc-2.0 on ws. Environment: HOST, PORT; one thread, THREADS is ignored.
'use strict'

const { JSONRPCServer } = require('json-rpc-2.0')
const { WebSocketServer } = require('ws')

if (process.argv[2] === '--version') {
  const of = name => `${name} ${require(`${name}/package.json`).version}`
  console.log(`${of('json-rpc-2.0')}, ${of('ws')}, node ${process.version}`)
  process.exit()
}

const methods = new JSONRPCServer()
methods.addMethod('echo', params => params)

const websockets = new WebSocketServer({ host: process.env.HOST, port: Number(process.env.PORT) })

websockets.on('connection', websocket => {
  // Without a listener an error of one connection would end the process.
  websocket.on('error', () => {})
  websocket.on('message', async data => {
    const response = await methods.receiveJSON(data.toString())
    // A notification has no response.
    if (response) websocket.send(JSON.stringify(response))
  })
})
