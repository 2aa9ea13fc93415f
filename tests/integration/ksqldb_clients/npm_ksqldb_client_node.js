// The package ksqldb-client-node of npm: queries over HTTP/2.
const assert = require("node:assert");
const { KsqlDbClient } = require("ksqldb-client-node");

(async () => {
    const session = new KsqlDbClient({ url: process.argv[2] }).session();
    const query = session.queryStream({ sql: "SELECT item, n FROM totals;" });
    const rows = [];
    for await (const some of query) rows.push(...some);
    assert.deepEqual(rows, [{ ITEM: "cup", N: 1 }, { ITEM: "mug", N: 2 }, { ITEM: "tea", N: 3 }]);
    const wrong = session.queryStream({ sql: "SELECT nothing FROM totals;" });
    await assert.rejects(async () => {
        for await (const _ of wrong);
    });
    session.destroy();
    process.exit(0);
})();
