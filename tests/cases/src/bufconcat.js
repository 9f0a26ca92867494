// Each chunk of a response is added by Buffer.concat: all is copied each time. "fixed": concat once.
const seconds = Number(process.argv[2]), fixed = process.argv.length > 3
const chunk = Buffer.alloc(8192, 'x')
function onData (state) {
  if (fixed) state.parts.push(chunk)
  else state.body = Buffer.concat([state.body, chunk])
}
function receive () {
  const state = { body: Buffer.alloc(0), parts: [] }
  for (let i = 0; i < 800; i++) onData(state)
  if (fixed) state.body = Buffer.concat(state.parts)
  return state.body.length
}
const end = Date.now() + seconds * 1000
let n = 0
function next () {
  receive(); n++
  if (Date.now() < end) setImmediate(next)
  else console.log((n / seconds).toFixed(1), 'responses/s')
}
next()
