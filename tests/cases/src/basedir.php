<?php
// Each request asks for the real paths of the sources beside this one.
function sources($names) {
    $sum = 0;
    foreach ($names as $name) $sum += strlen(realpath(__DIR__ . "/../src/$name"));
    return $sum;
}
$names = array_map('basename', array_slice(glob(__DIR__ . '/*'), 0, 40));
$end = microtime(true) + (float)$argv[1];
$requests = $sum = 0;
while (microtime(true) < $end) { $sum += sources($names); $requests++; }
printf("%.0f requests/s %d\n", $requests / (float)$argv[1], $sum % 10);
