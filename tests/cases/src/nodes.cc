// Nodes that lie in random order are walked through: each load waits for memory.
#include <list>
#include <vector>
#include <algorithm>
#include <random>
#include <ctime>
#include <cstdio>
#include <cstdlib>
struct Node{ Node*next; long v; long pad[6]; };
static __attribute__((noinline)) long sum(Node*n){ long s=0; for(;n;n=n->next) s+=n->v; return s; }
int main(int, char **argv){ std::vector<Node> a(2000000); std::vector<int> o(a.size()); for(size_t i=0;i<o.size();i++) o[i]=i; std::shuffle(o.begin(),o.end(),std::mt19937(1)); for(size_t i=0;i+1<o.size();i++) a[o[i]].next=&a[o[i+1]],a[o[i]].v=i; a[o.back()].next=nullptr; timespec t; clock_gettime(CLOCK_MONOTONIC,&t); double e=t.tv_sec+t.tv_nsec/1e9+atof(argv[1]); long s=0; for(double n=0;n<e;clock_gettime(CLOCK_MONOTONIC,&t),n=t.tv_sec+t.tv_nsec/1e9) s+=sum(&a[o[0]]); printf("%ld\n",s); }
