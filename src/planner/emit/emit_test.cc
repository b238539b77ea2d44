// Emitted files: golden trees of four plans, agreement of the parts, flags of the engine version, refusals.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "base/file.h"
#include "planner/emit/emit.h"
#include "planner/preflight/flag_table.h"

namespace perigee::planner {
namespace {

const std::string kData = std::string(PERIGEE_SOURCE_DIR) + "/tests/data/planner/";
const char* const kPlans[] = {"k3-eight-nodes", "k3-four-nodes", "k26-pd", "k3-950", "k3-sglang", "k26-sglang-pd"};

Plan load(const std::string& name) {
  auto plan = read_plan_file(kData + "plans/" + name + ".yaml");
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  return plan.ok() ? std::move(*plan) : Plan{};
}

std::vector<EmittedFile> emit(const Plan& plan) {
  auto files = emit_plan(plan);
  EXPECT_TRUE(files.ok()) << files.status().message();
  return files.ok() ? std::move(*files) : std::vector<EmittedFile>{};
}

const EmittedFile* find(const std::vector<EmittedFile>& files, const std::string& path) {
  const auto found = std::find_if(files.begin(), files.end(), [&](const EmittedFile& f) { return f.path == path; });
  return found == files.end() ? nullptr : &*found;
}

// The golden trees were read line by line against the guides restated in spec ascend.md 2.5 to 2.9 and 3.
TEST(Emit, MatchesGoldenTrees) {
  namespace fs = std::filesystem;
  for (const std::string name : {"k3-eight-nodes", "k3-four-nodes", "k26-pd", "k26-sglang-pd"}) {
    const std::vector<EmittedFile> files = emit(load(name));
    const fs::path root = kData + "emitted/" + name;
    std::set<std::string> golden;
    for (const auto& entry : fs::recursive_directory_iterator(root)) {
      if (entry.is_regular_file()) golden.insert(fs::relative(entry.path(), root).string());
    }
    std::set<std::string> emitted;
    for (const EmittedFile& file : files) {
      emitted.insert(file.path);
      const auto expected = read_file((root / file.path).string(), std::size_t{1} << 20);
      ASSERT_TRUE(expected.ok()) << expected.status().message();
      EXPECT_EQ(file.content, *expected) << name << "/" << file.path;
    }
    EXPECT_EQ(emitted, golden) << name;
  }
}

TEST(Emit, PassesItsOwnPreflight) {
  for (const std::string name : kPlans) {
    const Plan plan = load(name);
    const auto report = check_emitted(plan, emit(plan));
    ASSERT_TRUE(report.ok()) << report.status().message();
    EXPECT_EQ(report->errors() + report->warnings(), 0U) << name << "\n" << format_text(*report);
  }
}

TEST(Emit, EveryFlagIsInTheTableOfThatVersion) {
  for (const std::string name : kPlans) {
    const Plan plan = load(name);
    const bool sglang = plan.engine == Engine::kSglang;
    const auto table = flag_table(sglang                            ? "sglang-0.5.23"
                                  : plan.engine_version == "0.23.0" ? "vllm-0.23.0"
                                                                    : "vllm-0.30.0");
    ASSERT_TRUE(table.ok());
    int flags = 0;
    for (const EmittedFile& file : emit(plan)) {
      if (file.path.rfind("compose/", 0) != 0) continue;
      for (std::size_t at = file.content.find("- \"--"); at != std::string::npos;
           at = file.content.find("- \"--", at + 1)) {
        const std::string flag = file.content.substr(at + 3, file.content.find('"', at + 3) - at - 3);
        EXPECT_TRUE((*table)->flags.count(flag) == 1 || (*table)->aliases.count(flag) == 1) << name << ": " << flag;
        ++flags;
      }
    }
    EXPECT_GT(flags, 15) << name;
  }
}

TEST(Emit, PartsAgree) {
  const Plan plan = load("k3-eight-nodes");
  const std::vector<EmittedFile> files = emit(plan);
  const EmittedFile* proxy = find(files, "proxy/proxy.sh");
  ASSERT_NE(proxy, nullptr);
  EXPECT_TRUE(proxy->executable);
  for (const PoolPlan& pool : plan.pools) {
    for (const std::string& host : pool.hosts) EXPECT_NE(proxy->content.find(host), std::string::npos) << host;
  }
  for (const char* what : {"nodes/prefill0-node3.sh", "compose/prefill0-node3.yaml", "kubernetes/prefill0.yaml"}) {
    const EmittedFile* file = find(files, what);
    ASSERT_NE(file, nullptr) << what;
    EXPECT_NE(file->content.find("8100"), std::string::npos);
    EXPECT_NE(file->content.find("36000"), std::string::npos);
  }
  EXPECT_EQ(files.size(), 26U);
  const EmittedFile* copy = find(files, "plan.yaml");
  ASSERT_NE(copy, nullptr);
  EXPECT_TRUE(parse_plan(copy->content, "plan.yaml").ok());
}

TEST(Emit, RefusesWhatWouldNotRun) {
  const auto message = [](const Plan& plan) {
    const auto files = emit_plan(plan);
    EXPECT_FALSE(files.ok());
    return files.ok() ? std::string() : files.status().message();
  };
  Plan plan = load("k3-eight-nodes");
  plan.pools[1].draft.tokens = 5;  // prefill drafts 7: a hybrid model needs them equal
  EXPECT_NE(message(plan).find("8.12"), std::string::npos);
  plan = load("k3-eight-nodes");
  plan.ports.prefill_kv = 30000;
  EXPECT_NE(message(plan).find("8.11"), std::string::npos);
  plan = load("k3-eight-nodes");
  plan.engine_version = "0.11.0";
  EXPECT_NE(message(plan).find("no flag table"), std::string::npos);
  plan = load("k3-eight-nodes");
  plan.pools[0].hosts[0] = "192.0.2.10'; rm -rf /";
  EXPECT_NE(message(plan).find("hosts"), std::string::npos);
  plan = load("k3-eight-nodes");
  plan.pools[0].hosts.pop_back();
  EXPECT_FALSE(message(plan).empty());
  plan = load("k3-sglang");
  plan.pools[0].max_sequences = 1000;
  EXPECT_NE(message(plan).find("DeepEP"), std::string::npos);
}

TEST(Emit, WritesTheTree) {
  const std::string directory = testing::TempDir() + "perigee-emit-test";
  const std::vector<EmittedFile> files = emit(load("k3-four-nodes"));
  ASSERT_TRUE(write_emitted(files, directory).ok());
  for (const EmittedFile& file : files) EXPECT_TRUE(std::filesystem::exists(directory + "/" + file.path)) << file.path;
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace perigee::planner
