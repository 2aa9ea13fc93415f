// The module github.com/thmeitz/ksqldb-go: everything over HTTP/2; it parses statements by itself first.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/thmeitz/ksqldb-go"
	"github.com/thmeitz/ksqldb-go/net"
)

func check(is bool, what ...any) {
	if !is {
		fmt.Fprintln(os.Stderr, what...)
		os.Exit(1)
	}
}

func main() {
	client, err := ksqldb.NewClientWithOptions(net.Options{BaseUrl: os.Args[1], AllowHTTP: true})
	check(err == nil, err)
	defer client.Close()
	info, err := client.GetServerInfo()
	check(err == nil && info.ServerStatus == "RUNNING", info, err)
	health, err := client.GetServerStatus()
	check(err == nil && *health.IsHealthy, health, err)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	asked := (&ksqldb.QueryOptions{Sql: "select item, n from totals where item='mug';"}).EnablePullQueryTableScan(false)
	_, rows, err := client.Pull(ctx, *asked)
	check(err == nil && len(rows) == 1 && rows[0][1].(float64) == 2, rows, err)
	for number := 1; number <= 2; number++ {
		_, err = client.Execute(ksqldb.ExecOptions{KSql: fmt.Sprintf("insert into orders (id, amount) values ('%d', %d.5);", number, number)})
		check(err == nil, err)
	}
	_, err = client.Execute(ksqldb.ExecOptions{KSql: "drop table nothing;"})
	check(err != nil, "a wrong statement is refused")
	pushed := make(chan ksqldb.Row, 9)
	heads := make(chan ksqldb.Header, 1)
	go client.Push(ctx, "select id, amount from orders emit changes;", pushed, heads)
	time.Sleep(5 * time.Second) // it asks for what comes from now on
	_, err = client.Execute(ksqldb.ExecOptions{KSql: "insert into orders (id, amount) values ('3', 3.5);"})
	check(err == nil, err)
	row := <-pushed
	check(row[1].(float64) == 3.5 || row[1].(float64) == 1.5, row)
}
