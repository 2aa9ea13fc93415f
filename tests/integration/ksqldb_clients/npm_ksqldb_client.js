// The package ksqldb-client of npm: everything over HTTP/2.
const assert = require("node:assert");
const Client = require("ksqldb-client");

(async () => {
    const { hostname, port } = new URL(process.argv[2]);
    const client = new Client({ host: `http://${hostname}`, port: Number(port), timeout: 60000 });
    await client.connect();
    assert.equal((await client.listTables())[0].name, "TOTALS");
    const sent = await client.insertInto("ORDERS", { ID: "1", AMOUNT: 1.5 });
    assert.equal(sent.status, 200);
    assert.equal(sent.error, undefined);
    const { data } = await client.query("SELECT item, n FROM totals WHERE item = 'mug';");
    assert.deepEqual(data.rows.map((row) => Object.values(row)), [["mug", 2]]);
    const pushed = [];
    await client.streamQuery("SELECT id, amount FROM orders EMIT CHANGES LIMIT 1;", ({ rows }) => pushed.push(...(rows ?? [])));
    assert.deepEqual(pushed.map((row) => Object.values(row)), [["1", 1.5]]);
    const { error } = await client.query("SELECT nothing FROM totals;");
    assert.ok(error);
    await client.disconnect();
    process.exit(0);
})();
