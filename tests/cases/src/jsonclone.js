const end = Date.now() + 1000 * Number(process.argv[2]);
const state = { users: Array.from({ length: 2000 }, (_, i) => ({ id: i, name: 'user ' + i, tags: ['a', 'b'] })) };
function reduce(s, i) { const next = JSON.parse(JSON.stringify(s)); next.users[i % 2000].name = 'x'; return next; }
let s = state, i = 0;
while (Date.now() < end) s = reduce(s, i++);
console.log(i);
