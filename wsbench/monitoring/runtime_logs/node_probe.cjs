// Loaded into a Node.js server before its own code (`node --require`): writes garbage collections, the heap and the delays of the
// event loop to the file that WSBENCH_PROBE names, as lines of JSON. It changes nothing that the server sees. All times are
// CLOCK_MONOTONIC in nanoseconds, which is what process.hrtime reads and performance.now counts from.
// It gathers in memory and writes four times a second, so that no collection costs a system call; its timers keep nobody alive.
'use strict'
const { isMainThread } = require('node:worker_threads')
const file = process.env.WSBENCH_PROBE
if (file && isMainThread) {
  const { writeSync, openSync } = require('node:fs')
  const { performance, PerformanceObserver } = require('node:perf_hooks')
  const { getHeapStatistics } = require('node:v8')
  const WRITE_MS = 250
  const TIMER_MS = 20
  const now = () => Number(process.hrtime.bigint())
  const origin = now() - Math.round(performance.now() * 1e6)
  const out = openSync(file, 'a')
  let lines = []
  let at = []
  let late = []

  const gc = new PerformanceObserver(list => {
    for (const { startTime, duration, detail } of list.getEntries()) {
      const t_ns = origin + Math.round(startTime * 1e6)
      lines.push(JSON.stringify({ of: 'gc', t_ns, kind: detail.kind, ns: Math.round(duration * 1e6) }))
    }
  })
  gc.observe({ entryTypes: ['gc'] })

  let last = now()
  const tick = () => {
    const t_ns = now()
    at.push(t_ns)
    late.push(Math.max(0, t_ns - last - TIMER_MS * 1e6))
    last = t_ns
    setTimeout(tick, TIMER_MS).unref()
  }
  setTimeout(tick, TIMER_MS).unref()

  const write = () => {
    const { used_heap_size, total_heap_size } = getHeapStatistics()
    lines.push(JSON.stringify({ of: 'heap', t_ns: now(), used_bytes: used_heap_size, committed_bytes: total_heap_size }))
    if (at.length) lines.push(JSON.stringify({ of: 'delays', t_ns: at[0], at_ns: at, late_ns: late }))
    const text = lines.join('\n') + '\n'
    lines = []
    at = []
    late = []
    try { writeSync(out, text) } catch { /* the trial's folder is gone, and so is the trial */ }
  }
  setInterval(write, WRITE_MS).unref()
  process.once('exit', write)
}
