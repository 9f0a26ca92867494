<?php
// Results of pages are gathered into one list.
$good = ($argv[2] ?? '') === 'twin';
function page(int $n): array {
    $rows = [];
    for ($i = 0; $i < 20; $i++) $rows[] = $n * 20 + $i;
    return $rows;
}
function gather_slow(int $pages): array {
    $all = [];
    for ($n = 0; $n < $pages; $n++) {
        $all = array_merge($all, page($n));
    }
    return $all;
}
function gather_quick(int $pages): array {
    $parts = [];
    for ($n = 0; $n < $pages; $n++) $parts[] = page($n);
    return array_merge(...$parts);
}
$end = microtime(true) + (float)$argv[1];
$n = 0;
while (microtime(true) < $end) {
    $all = $good ? gather_quick(2000) : gather_slow(2000);
    $n++;
}
echo $n, " reports ", count($all), "\n";
