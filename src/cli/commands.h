// One file a subcommand; each registers itself on its parent. A command's callback stores the exit code:
// 0 success, 1 the work failed or a check found a difference, 2 wrong usage or unreadable input.
#pragma once

namespace CLI {
class App;
}

namespace perigee::cli {

// Parents of command groups: `perigee verify ...` and `perigee plan ...`.
struct CommandGroups {
  CLI::App* root = nullptr;
  CLI::App* verify = nullptr;
  CLI::App* plan = nullptr;
};

using RegisterCommand = void (*)(const CommandGroups& groups, int& exit_code);

}  // namespace perigee::cli
