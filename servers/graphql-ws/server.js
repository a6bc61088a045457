// graphql-ws on ws. Environment: HOST, PORT; one thread, THREADS is ignored.
'use strict'

const { EventEmitter } = require('events')
const { buildSchema } = require('graphql')
const { PubSub } = require('graphql-subscriptions')
const { useServer } = require('graphql-ws/use/ws')
const { WebSocketServer } = require('ws')

if (process.argv[2] === '--version') {
  const of = name => `${name} ${require(`./node_modules/${name}/package.json`).version}`
  console.log(`${['graphql-ws', 'graphql', 'graphql-subscriptions', 'ws'].map(of).join(', ')}, node ${process.version}`)
  process.exit()
}

const schema = buildSchema(`
  type Query { echo(text: String!): String! }
  type Mutation { publish(room: ID!, text: String!): Boolean! }
  type Subscription { room(room: ID!): String! }
`)

// Node warns of more than ten listeners of an event; here they are the members of a room.
const rooms = new PubSub({ eventEmitter: new EventEmitter().setMaxListeners(0) })

const roots = {
  query: { echo: ({ text }) => text },
  mutation: {
    publish: async ({ room, text }) => {
      await rooms.publish(room, { room: text })
      return true
    }
  },
  subscription: { room: ({ room }) => rooms.asyncIterableIterator(room) }
}

const websockets = new WebSocketServer({ host: process.env.HOST, port: Number(process.env.PORT), path: '/graphql' })
useServer({ schema, roots }, websockets)
