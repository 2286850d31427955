<?php
// What a program does with the extension `redis` of PHP.
//
// Takes the host and the port of a listener, and its password. Prints one line of JSON.

[, $host, $port, $password] = $argv;

$redis = new Redis();
$redis->connect($host, (int) $port);
$redis->auth($password);
$redis->select(0);
$given = [
    "library" => "phpredis",
    "one" => $redis->incr("orders"),
    "last" => $redis->incrBy("orders", 5),
    "transaction" => $redis->multi()->incr("orders")->incr("orders")->exec(),
    "together" => $redis->pipeline()->incr("orders")->incr("orders")->exec(),
];
$redis->clearLastError();
$redis->decr("orders");
// The extension keeps the byte that ends the text in C.
$given["refused"] = rtrim($redis->getLastError(), "\0");
echo json_encode($given), "\n";
