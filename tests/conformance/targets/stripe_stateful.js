// Starts npm's stripe-stateful-mock through its app factory: on loopback alone, on a free port.
// node stripe_stateful.js <folder of the package>
const { createExpressApp } = require(process.argv[2]);

const server = createExpressApp().listen(0, "127.0.0.1", () => {
  console.log(`Running on http://127.0.0.1:${server.address().port}`);
});
