WITH ranked AS (
    SELECT id, row_number() OVER (PARTITION BY machine ORDER BY at_us DESC, id) AS place, source
    FROM {recordings} AS r
    WHERE {where}
)
SELECT l.machine, l.at_us, n.source, l.id, l.layer, l.us, l.capacity_us
FROM {layers} AS l JOIN ranked AS n ON l.id = n.id
WHERE n.place <= 3
ORDER BY l.machine, l.at_us DESC, l.id, l.us DESC, l.layer
