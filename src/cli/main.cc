#include <CLI/CLI.hpp>

int main(int argc, char** argv) {
  CLI::App app("Perigee: Kimi K3 models on your own machines");
  CLI11_PARSE(app, argc, argv);
  return 0;
}
