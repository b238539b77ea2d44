// Rules on folders of launch files with known faults, and the reports.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <string>

#include "planner/preflight/check.h"
#include "planner/preflight/facts.h"

namespace perigee::planner {
namespace {

const std::string kData = std::string(PERIGEE_SOURCE_DIR) + "/tests/data/planner/";

void expect_all(const std::string& folder, int certain, int likely) {
  const auto report = run_cases(kData + folder);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->certain.expected, certain);
  EXPECT_EQ(report->certain.found, certain) << format_cases(*report);
  EXPECT_EQ(report->likely.found, likely) << format_cases(*report);
  EXPECT_EQ(report->false_on_clean + report->false_on_faulty, 0) << format_cases(*report);
}

// 61 folders after public reports; 40 certain findings in 38 cases, 10 likely ones, 14 clean cases.
TEST(Preflight, FindsPublishedFaults) {
  expect_all("preflight", 40, 10);
}

// One fault each for rules that the public reports do not show.
TEST(Preflight, FindsFaultsOfTheOtherRules) {
  expect_all("preflight-own", 71, 0);
}

// Written from the spec before the rules were read.
TEST(Preflight, FindsFaultsOfBlindCases) {
  expect_all("preflight-blind", 49, 6);
}

TEST(Preflight, ContextComesFromTheImage) {
  const std::string script =
      "docker run --rm --device /dev/davinci0 ascend/vllm-ascend:v0.23.0-a3 vllm serve /models/Kimi-K3-w4a8 "
      "--disable-log-requests\n";
  const auto report = check_files({{"run.sh", script}}, {});
  ASSERT_TRUE(report.ok());
  bool old_image = false;
  for (const Finding& finding : report->findings) old_image = old_image || finding.rule == "8.35";
  EXPECT_TRUE(old_image);
  ASSERT_EQ(report->assumptions.size(), 1U);
  EXPECT_NE(report->assumptions[0].find("flags of 0.23.0, chip a3, model kimi-k3"), std::string::npos)
      << report->assumptions[0];
}

TEST(Preflight, ReportsAreMachineReadable) {
  const auto report = check_files({{"a.sh", "vllm serve m --tensor-paralel-size 8\n"}}, {});
  ASSERT_TRUE(report.ok());
  ASSERT_EQ(report->findings.size(), 1U) << format_text(*report);
  EXPECT_EQ(report->findings[0].fix, "--tensor-parallel-size");
  EXPECT_FALSE(report->findings[0].source.empty());
  const Json json = Json::parse(format_json(*report));
  EXPECT_EQ(json["findings"][0]["rule"], "8.27");
  const Json sarif = Json::parse(format_sarif(*report));
  EXPECT_EQ(sarif["version"], "2.1.0");
  EXPECT_EQ(sarif["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["region"]["startLine"], 1);
  EXPECT_NE(format_text(*report).find("a.sh:1: "), std::string::npos);
}

TEST(Preflight, UnreadableFilesNameFileAndLine) {
  const auto message = [](const std::string& content) {
    const auto report = check_files({{"x.sh", content}}, {});
    return report.ok() ? std::string() : report.status().message();
  };
  EXPECT_EQ(message(std::string("a\nb\0c", 5)), "x.sh:2: byte 0x00: expected text");
  EXPECT_NE(message("a\n\xff\n").find("x.sh:2:"), std::string::npos);
  EXPECT_NE(message(std::string((std::size_t{4} << 20) + 1, 'a')).find("x.sh:1:"), std::string::npos);
  EXPECT_FALSE(read_inputs({"/nonexistent/file.sh"}).ok());
  EXPECT_FALSE(check_files({}, {}).ok());
  EXPECT_FALSE(run_cases("/nonexistent").ok());
}

TEST(Preflight, EveryRuleHasASource) {
  for (const RuleFacts& rule : preflight_facts().rules) EXPECT_FALSE(rule.source.empty()) << rule.id;
  EXPECT_GE(preflight_facts().rules.size(), 46U);
  for (const auto& entry : preflight_facts().models) {
    EXPECT_TRUE(entry.facts.shape_name.empty() || entry.facts.shape != nullptr) << entry.facts.shape_name;
  }
}

TEST(Versions, CandidatesComeBeforeReleases) {
  EXPECT_EQ(compare_versions("0.26.0rc1", "0.26.0"), -1);
  EXPECT_EQ(compare_versions("v0.30.0rc2", "0.30.0rc1"), 1);
  EXPECT_EQ(compare_versions("0.23.0", "0.23.0"), 0);
  EXPECT_EQ(compare_versions("0.9", "0.10"), -1);
  EXPECT_EQ(compare_versions("", "0.1"), -1);
}

}  // namespace
}  // namespace perigee::planner
