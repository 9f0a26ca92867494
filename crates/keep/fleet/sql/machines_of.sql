SELECT machine, max_by(host, at_us) AS host
FROM {recordings} AS r
WHERE {where}
GROUP BY machine
