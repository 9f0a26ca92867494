// A visitor asks by a row of dynamic_casts what each node is. Twin: a tag.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>
struct Node { int kind; virtual ~Node() {} };
struct Expression : virtual Node {};
struct Statement : virtual Node {};
struct Literal : Expression { Literal() { kind = 0; } };
struct Sum : Expression { Sum() { kind = 1; } };
struct Product : Expression { Product() { kind = 2; } };
struct Call : Expression { Call() { kind = 3; } };
struct Return : Statement { Return() { kind = 4; } };
struct If : Statement { If() { kind = 5; } };
static bool tagged;
__attribute__((noinline)) int weigh(Node *node) {
  if (tagged) return node->kind + 1;
  if (dynamic_cast<Literal *>(node)) return 1;
  if (dynamic_cast<Sum *>(node)) return 2;
  if (dynamic_cast<Product *>(node)) return 3;
  if (dynamic_cast<Call *>(node)) return 4;
  if (dynamic_cast<Return *>(node)) return 5;
  return dynamic_cast<If *>(node) ? 6 : 0;
}
__attribute__((noinline)) long visit_tree(const std::vector<std::unique_ptr<Node>> &nodes) {
  long sum = 0;
  for (auto &node : nodes) sum += weigh(node.get());
  return sum;
}
int main(int argc, char **argv) {
  tagged = argc > 2;
  std::vector<std::unique_ptr<Node>> nodes;
  for (int i = 0; i < 4000; i++) switch (i * 7 % 6) {
    case 0: nodes.emplace_back(new Literal); break;
    case 1: nodes.emplace_back(new Sum); break;
    case 2: nodes.emplace_back(new Product); break;
    case 3: nodes.emplace_back(new Call); break;
    case 4: nodes.emplace_back(new Return); break;
    default: nodes.emplace_back(new If);
  }
  auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(atof(argv[1]));
  long n = 0, sum = 0;
  for (; std::chrono::steady_clock::now() < end; n += nodes.size()) sum += visit_tree(nodes);
  printf("%ld nodes, %ld\n", n, sum);
}
