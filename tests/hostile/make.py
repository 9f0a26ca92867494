#!/usr/bin/env python3
"""make.py DIR: makes hostile ELF files, each of a kind that once took an observer's memory or time.

Code that loops (jmp $) lies at 0x1000 of each. What a file is like is told where it is made; `run` maps them."""
import array
import os
import shutil
import struct
import sys
import zlib

CODE = 0x1000
EXEC, SYMTAB, STRTAB, NOTE, DYNSYM = 1, 2, 3, 7, 11


def header(shoff=0, shnum=0, shstr=0, phnum=1, phoff=64):
    ident = b"\x7fELF" + bytes([2, 1, 1, 0]) + bytes(8)
    return ident + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, CODE, phoff, shoff, 0, 64, 56, phnum, 64, shnum, shstr)


def segment(kind=1, flags=5, offset=0, address=0, size=0x2000):
    return struct.pack("<IIQQQQQQ", kind, flags, offset, address, address, size, size, 0x1000)


def section(name=0, kind=0, address=0, offset=0, size=0, link=0, info=0, entry=0, flags=0):
    return struct.pack("<IIQQQQIIQQ", name, kind, flags, address, offset, size, link, info, 1, entry)


class File:
    """A file that is written here and there; the rest are holes."""

    def __init__(self, path, size=0x2000):
        self.file = open(path, "wb")
        self.file.truncate(size)
        self.at(CODE, b"\xeb\xfe")

    def at(self, offset, data):
        self.file.seek(offset)
        self.file.write(data)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.fchmod(self.file.fileno(), 0o755)
        self.file.close()


def plain(path, sections, size=0x4000, at=0x2000, extra=()):
    """A file with these sections: (name, kind, address, data or (offset, size), link, entry size, flags)."""
    with File(path, size) as file:
        names, heads, place = b"\0", [section()], at
        for name, kind, address, data, link, entry, flags in sections:
            where = len(names)
            names += name.encode() + b"\0"
            if isinstance(data, tuple):
                offset, length = data
            else:
                place = (place + 15) & ~15
                offset, length = place, len(data)
                file.at(place, data)
                place += length
            heads.append(section(where, kind, address, offset, length, link, 0, entry, flags))
        place = (place + 15) & ~15
        file.at(place, names)
        heads.append(section(1, STRTAB, 0, place, len(names)))
        table = (place + len(names) + 15) & ~15
        file.at(table, b"".join(heads))
        file.at(0, header(table, len(heads), len(heads) - 1) + segment())
        for offset, data in extra:
            file.at(offset, data)


def symbol(name, address=CODE, size=2, info=0x12):
    return struct.pack("<IBBHQQ", name, info, 0, 1, address, size)


def many_symbols(path, count, kind=SYMTAB, names=None):
    strings = names or b"\0" + b"x" * 4000 + b"\0"
    table = array.array("Q")
    for i in range(count):
        # Name, kind and section; address; size.
        table.extend((1 + i % 3999 | 0x12 << 32 | 1 << 48, CODE + 16 * i, 16))
    table = table.tobytes()
    plain(path, [(".symtab", kind, 0, table, 2, 24, 0), (".strtab", STRTAB, 0, strings, 0, 0, 0)])


def unwinding(path, instructions, index=True, entries=1):
    """Unwind tables whose function has these instructions."""
    frame, header_at = 0x10000, 0x3000
    common = struct.pack("<IB", 0, 1) + b"zR\0" + bytes([1, 0x78, 16, 1, 0x1b, 0x0C, 7, 8, 0x90, 1])
    common += bytes(-(len(common)) % 4)
    data = struct.pack("<I", len(common)) + common
    begin = len(data)
    for _ in range(entries):
        start = len(data)
        body = struct.pack("<Ii", start + 4, CODE - (frame + start + 8)) + struct.pack("<I", 0x1000) + b"\0" + instructions
        body += bytes(-len(body) % 4)
        data += struct.pack("<I", len(body)) + body
    data += bytes(4)
    rows = struct.pack("<ii", CODE - header_at, frame + begin - header_at)
    head = bytes([1, 0x1B, 3, 0x3B]) + struct.pack("<iI", frame - header_at - 4, 1) + rows
    sections = [(".eh_frame", EXEC, frame, data, 0, 0, 2)]
    if index:
        sections.append((".eh_frame_hdr", EXEC, header_at, head, 0, 0, 2))
    plain(path, sections)


DEEP, FUNCTIONS, FIRST = 120, 128, 0x100


def deep():
    """A page of code that calls itself by ever other ways, DEEP functions deep with frame pointers, and there waits for a lock of
    its own for 1 ms, or spins."""

    def relative(here, there):
        return struct.pack("<i", there - here)

    entry, dispatch, bottom, time = 0, 0x40, 0x80, 0xF00
    page = bytearray(0x1000)

    def put(at, *parts):
        data = b"".join(parts)
        page[at : at + len(data)] = data

    # push %rbp; mov %rsp, %rbp; 1: mov $DEEP, %ecx; rdtsc; call dispatch; jmp 1b
    put(entry, b"\x55\x48\x89\xe5\xb9", struct.pack("<I", DEEP), b"\x0f\x31\xe8", relative(entry + 16, dispatch), b"\xeb\xf2")
    # The next function by a random number in %eax, until %ecx is 0.
    put(dispatch, b"\xff\xc9\x0f\x84", relative(dispatch + 8, bottom), bytes.fromhex("69c06d4ec641 0539300000 89c2 c1ea10 83e27f c1e204 488d35"))
    put(dispatch + 33, relative(dispatch + 37, FIRST), bytes.fromhex("4801f2 ffe2"))
    # test $0x10000, %eax; jz 1f; futex(a word below the stack, FUTEX_WAIT_PRIVATE, 0, &time); ret; 1: spin; ret
    put(bottom, bytes.fromhex("a900000100 7429 89c7 81e7f0ff0000 48f7df 488dbc3c00f0ffff be80000000 31d2 4c8d15"))
    put(bottom + 36, relative(bottom + 40, time), bytes.fromhex("b8ca000000 0f05 c3 ba40420f00 ffca 75fc c3"))
    for i in range(FUNCTIONS):
        at = FIRST + 16 * i
        put(at, b"\x55\x48\x89\xe5\xe8", relative(at + 9, dispatch), b"\x5d\xc3")
    put(time, struct.pack("<QQ", 0, 1000000))
    return bytes(page)


def inlined_go(path):
    """A Go program with 60 functions inlined into one another everywhere, with names of 4,000 characters."""
    levels, table, calls = 60, 0x20000, 0x90000
    names = b"".join(b"%02d" % i + b"n" * 3997 + b"\0" for i in range(levels + 1))
    steps = b"\0" + b"\x02\x80\x20" + b"\x02\x01" * (levels - 1) + b"\x77\x01" + b"\0"
    function = struct.pack("<IiIIIIIIIII", 0, 4000 * levels, 0, 0, 0, 0, 0, 3, 0, 0, 4 << 24)
    function += struct.pack("<III", 0, 0, 1) + struct.pack("<IIII", 0, 0, 0, 0)
    index = struct.pack("<IIII", 0, 16, 0x1000, 0) + function
    places = [72]
    for part in (names, bytes(8), bytes(8), steps):
        places.append(places[-1] + len(part))
    header = bytes([0xF1, 0xFF, 0xFF, 0xFF, 0, 0, 1, 8]) + struct.pack("<QQQ", 1, 0, CODE) + struct.pack("<QQQQQ", *places)
    tree = b"".join(struct.pack("<IIII", 0, 4000 * i, 0x1000 + i, 0) for i in range(levels))
    module = bytearray(400)
    for at, word in ((0, table), (160, CODE), (176, CODE), (320, calls)):
        module[at : at + 8] = struct.pack("<Q", word)
    sections = [(".text", EXEC, CODE, (CODE, 0x1000), 0, 0, 6)]
    sections += [(".gopclntab", EXEC, table, header + names + bytes(16) + steps + index, 0, 0, 2)]
    sections += [(".noptrdata", EXEC, 0x80000, bytes(module), 0, 0, 3), (".go.func", EXEC, calls, tree, 0, 0, 2)]
    plain(path, sections + [(".go.buildinfo", EXEC, 0xA0000, b"x" * 32, 0, 0, 2)], extra=[(CODE, deep())])


def make(base):
    def path(name):
        os.makedirs(os.path.dirname(os.path.join(base, name)), exist_ok=True)
        return os.path.join(base, name)

    # 79 million program headers, by the count in the first section header.
    with File(path("program-headers"), 0x3000 + (4 << 30)) as file:
        file.at(0, header(0x2000, 1, 0, 0xFFFF, 0x3000))
        file.at(0x2000, section(info=(4 << 30) // 56))
        file.at(0x3000, segment())
    # As many section headers, by the size of the first.
    with File(path("section-headers"), 0x3000 + (5 << 30)) as file:
        file.at(0, header(0x2000, 0, 1) + segment())
        file.at(0x2000, section(size=(5 << 30) // 64))
    # Notes that overlap, each within its limit.
    count = 65279
    with File(path("notes"), 0x2000 + count * 64 + (1 << 20)) as file:
        strings = 0x2000 + count * 64
        heads = [section(), section(0, STRTAB, 0, strings, 1)]
        heads += [section(0, NOTE, 0, CODE + 4 * i, 65532) for i in range(2, count)]
        file.at(0x2000, b"".join(heads))
        file.at(0, header(0x2000, count, 1) + segment())
    # Names of sections that overlap.
    with File(path("section-names"), 0x2000 + count * 64 + (1 << 20)) as file:
        strings = 0x2000 + count * 64
        heads = [section(), section(0, STRTAB, 0, strings, 1 << 19)]
        heads += [section(4 * i, 1, CODE, CODE, 16) for i in range(2, count)]
        file.at(0x2000, b"".join(heads))
        file.at(strings, b"n" * ((1 << 19) - 1) + b"\0")
        file.at(0, header(0x2000, count, 1) + segment())
    # A sparse table of dynamic symbols, in what is taken for Python, and a full one for Java's library.
    for name in ("lib/libpython3.11.so", "lib/python3", "bin/postgres"):
        plain(path(name), [(".dynsym", DYNSYM, 0, (1 << 20, 4 << 30), 2, 24, 0), (".dynstr", STRTAB, 0, (1 << 20, 4 << 30), 0, 0, 0)], (4 << 30) + (1 << 21))
    many_symbols(path("jvm/libjvm.so"), 400000, DYNSYM)
    # Symbols that are no functions: their number never grows.
    plain(path("no-functions"), [(".symtab", SYMTAB, 0, (1 << 20, 64 << 30), 2, 24, 0), (".strtab", STRTAB, 0, b"\0x\0", 0, 0, 0)], (64 << 30) + (1 << 21))
    # As many functions as are kept, in two files that are needed by turns.
    many_symbols(path("symbols-1"), 500000)
    shutil.copy(path("symbols-1"), path("symbols-2"))
    # A name that unfolds to 2^30 characters.
    digits = "0123456789ABCDEFGHIJKLMNOPQRST"
    bomb = "_Z1fSt4pairIiiE" + "".join(f"S_IS{d}_S{d}_E" for d in digits)
    plain(path("names-that-unfold"), [(".symtab", SYMTAB, 0, symbol(0, 0, 0, 0) + symbol(1, CODE, 16), 2, 24, 0), (".strtab", STRTAB, 0, b"\0" + bomb.encode() + b"\0", 0, 0, 0)])
    # Programs that name one large file with their debug symbols, which is holes.
    link = b"large.debug\0" + struct.pack("<I", 1)
    for i in range(60):
        plain(path(f"links/program-{i}"), [(".gnu_debuglink", EXEC, 0, link, 0, 0, 0)])
    plain(path("links/large.debug"), [(".symtab", SYMTAB, 0, symbol(1), 2, 24, 0), (".strtab", STRTAB, 0, b"\0x\0", 0, 0, 0)], 256 << 20)
    # Tracepoints without number.
    probe = struct.pack("<QQQ", CODE, 0, 0) + b"ncpu\0mutex_slow\0" + b"8@%rdi\0"
    note = struct.pack("<III", 8, len(probe), 3) + b"stapsdt\0" + probe + bytes(-len(probe) % 4)
    plain(path("tracepoints"), [(".note.stapsdt", NOTE, 0, note * 50000, 0, 0, 0)])
    # Debug information that unpacks to a thousand times its size.
    packed = zlib.compress(bytes(256 << 20), 9)
    chunk = struct.pack("<IIQQ", 1, 0, 256 << 20, 1) + packed
    plain(path("packed"), [(name, EXEC, 0, chunk, 0, 0, 0x800) for name in (".debug_info", ".debug_abbrev", ".debug_line", ".debug_str")])
    # Unwind tables: an expression that jumps to itself, rows without number, a large table without an index.
    unwinding(path("unwind-loop"), bytes([0x0F, 3, 0x2F, 0xFD, 0xFF]))
    unwinding(path("unwind-loop-without-index"), bytes([0x0F, 3, 0x2F, 0xFD, 0xFF]), index=False)
    unwinding(path("unwind-rows"), b"\x0a\x41" * 30000)
    unwinding(path("unwind-entries"), b"\x41\x0a", index=False, entries=60000)
    # A program in Go, by its table: functions without number, each without an end.
    table = bytes([0xF1, 0xFF, 0xFF, 0xFF, 0, 0, 1, 8])
    table += struct.pack("<QQQQQQQQ", 1 << 60, 0, CODE, 72, 80, 88, 96, 104) + bytes(4096)
    data = struct.pack("<Q", 0x20000) + bytes(168) + struct.pack("<Q", CODE) + bytes(136) + struct.pack("<Q", 0x20000) + bytes(64)
    data = data[:160] + struct.pack("<Q", CODE) + data[168:]
    plain(path("go"), [(".text", EXEC, CODE, (CODE, 16), 0, 0, 6), (".gopclntab", EXEC, 0x20000, (0x10000, 64 << 30), 0, 0, 2), (".noptrdata", EXEC, 0x30000, data, 0, 0, 3), (".go.buildinfo", EXEC, 0x40000, b"x" * 32, 0, 0, 2)], (64 << 30) + 0x20000, extra=[(0x10000, table)])
    # Deep stacks, ever new ones, of functions with long names; and each with many functions inlined.
    names = b"\0" + b"".join(b"function_%03d" % i + b"n" * 1011 + b"\0" for i in range(FUNCTIONS))
    symbols = b"".join(symbol(1 + 1024 * i, CODE + FIRST + 16 * i, 16) for i in range(FUNCTIONS))
    plain(path("deep-names"), [(".symtab", SYMTAB, 0, symbols, 2, 24, 0), (".strtab", STRTAB, 0, names, 0, 0, 0)], extra=[(CODE, deep())])
    inlined_go(path("deep-go"))
    # Servers with tables of symbols as large as are read.
    for i in range(60):
        table, strings = (1 << 20, 24 << 22), (128 << 20, 16 << 20)
        plain(path(f"servers/{i}/postgres"), [(".dynsym", DYNSYM, 0, table, 2, 24, 0), (".dynstr", STRTAB, 0, strings, 0, 0, 0)], 144 << 20)
    # Files with 256 segments.
    for i in range(4000):
        with File(path(f"segments/file-{i}"), 0x2000 + 256 * 56) as file:
            file.at(0, header(phnum=256, phoff=0x2000))
            file.at(0x2000, segment() + b"".join(segment(offset=0x10000 * j, address=0x10000 * j) for j in range(1, 256)))
    # Many files.
    for i in range(600):
        plain(path(f"many/file-{i}"), [(".symtab", SYMTAB, 0, symbol(0, 0, 0, 0) + symbol(1), 2, 24, 0), (".strtab", STRTAB, 0, f"\0function_{i}\0".encode(), 0, 0, 0)])


if __name__ == "__main__":
    make(sys.argv[1])
