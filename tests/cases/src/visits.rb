# Visits per hour are counted from a log; its times are all of one form.
require 'time'
good = ARGV[1] == 'twin'
LINES = (0...2000).map { |i| format("2026-03-%02d %02d:%02d:%02d /page/%d", i % 28 + 1, i % 24, i * 7 % 60, i * 13 % 60, i % 90) }

def parse_slow(text)
  Time.parse(text)
end

def parse_quick(text)
  Time.utc(text[0, 4].to_i, text[5, 2].to_i, text[8, 2].to_i, text[11, 2].to_i, text[14, 2].to_i, text[17, 2].to_i)
end

def visit(counts, line, good)
  at = good ? parse_quick(line) : parse_slow(line[0, 19])
  counts[at.hour] += 1
end

counts = Hash.new(0)
n = 0
stop = Process.clock_gettime(Process::CLOCK_MONOTONIC) + ARGV[0].to_f
while Process.clock_gettime(Process::CLOCK_MONOTONIC) < stop
  50.times { visit(counts, LINES[n % 2000], good); n += 1 }
end
puts "#{n} visits"
