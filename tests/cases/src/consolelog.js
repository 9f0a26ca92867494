const end = Date.now() + 1000 * Number(process.argv[2]);
function handle(i) { console.log('request', i, 'handled'); }
let i = 0;
while (Date.now() < end) for (let k = 0; k < 100; k++) handle(i++);
