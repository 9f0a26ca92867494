# encoding: utf-8
# A tokenizer looks at one character at a time, by its number; the text has a few letters that are not ASCII.
class Tokenizer
  def initialize(text) = (@text = text; @pos = 0; @n = text.length)
  def peek = @text[@pos]
  def next_token
    @pos += 1 while @pos < @n && peek == ' '
    return nil if @pos >= @n
    start = @pos
    @pos += 1 while @pos < @n && peek != ' '
    @text[start...@pos]
  end
end
class Chars < Tokenizer
  def initialize(text) = (super; @chars = text.chars)
  def peek = @chars[@pos]
  def next_token
    @pos += 1 while @pos < @n && peek == ' '
    return nil if @pos >= @n
    start = @pos
    @pos += 1 while @pos < @n && peek != ' '
    @chars[start...@pos].join
  end
end
text = (['größe'] + (1..4000).map { |i| "word#{i}" }).join(' ')
kind = ARGV[1] == 'twin' ? Chars : Tokenizer
now = -> { Process.clock_gettime(Process::CLOCK_MONOTONIC) }
stop = now.() + ARGV[0].to_f
n = 0
while now.() < stop
  t = kind.new(text)
  while t.next_token
    n += 1
    break if n % 64 == 0 && now.() > stop
  end
end
puts "#{n} tokens"
