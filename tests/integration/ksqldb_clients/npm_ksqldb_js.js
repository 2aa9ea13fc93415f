// The package ksqldb-js of npm: HTTP/1.1 for statements and pull queries, HTTP/2 for push queries and inserts.
const assert = require("node:assert");
const Client = require("ksqldb-js");

(async () => {
    const client = new Client({ ksqldbURL: process.argv[2] });
    assert.equal((await client.ksql("LIST STREAMS;")).streams[0].name, "ORDERS");
    assert.equal((await client.inspectServerInfo()).data.KsqlServerInfo.serverStatus, "RUNNING");
    assert.equal((await client.inspectServerHealth()).data.isHealthy, true);
    const [head, row] = await client.pull("SELECT item, n FROM totals WHERE item = 'mug';");
    assert.deepEqual([head.columnNames, row], [["ITEM", "N"], ["mug", 2]]);
    const acks = await client.insertStream("ORDERS", [{ ID: "1", AMOUNT: 1.5 }, { ID: "2", AMOUNT: -2 }]);
    assert.equal(JSON.stringify(acks).match(/"ok"|\\"ok\\"/g).length, 2);
    const pushed = [];
    await new Promise((done) => {
        client.push("SELECT id, amount FROM orders EMIT CHANGES LIMIT 2;", (chunk) => {
            pushed.push(...chunk.trim().split("\n").map(JSON.parse));
            if (pushed.length === 3) done();
        });
    });
    assert.deepEqual(pushed.slice(1), [["1", 1.5], ["2", -2]]);
    await assert.rejects(client.pull("SELECT nothing FROM totals;"));
    process.exit(0);
})();
