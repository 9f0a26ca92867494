# nothing_at TRACEPOINT...: makes $dir/attach and $dir/nothing.o, with which `$dir/attach $dir/nothing.o COMMAND...` runs a
# command while BPF programs that do nothing hang on these tracepoints: what the kernel itself takes for telling of them.
nothing_at() {
  local point
  { echo '#define SEC(name) __attribute__((section(name), used))'
    echo 'char terms[] SEC("license") = "GPL";'
    for point; do echo "SEC(\"tp_btf/$point\") int at_$point(void *ctx) { return 0; }"; done
  } > "$dir/nothing.bpf.c"
  cat > "$dir/attach.c" <<'C'
#include <bpf/libbpf.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int argc, char **argv)
{
	struct bpf_object *object = bpf_object__open(argv[1]);
	struct bpf_program *program;
	if (!object || bpf_object__load(object))
		return 1;
	bpf_object__for_each_program(program, object)
		if (!bpf_program__attach(program))
			return 1;
	if (!fork())
		execv(argv[2], argv + 2);
	wait(0);
}
C
  clang -O2 -g -target bpf -c "$dir/nothing.bpf.c" -o "$dir/nothing.o" &&
    cc -O2 "$dir/attach.c" -o "$dir/attach" -lbpf 2>/dev/null || { echo "no libbpf (apt-get install libbpf-dev)"; return 1; }
}
