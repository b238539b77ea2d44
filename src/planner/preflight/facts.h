// What preflight knows beside flag tables: engine versions, chips, model families, rules. Read once from
// data/preflight.json and data/rules.json; immutable, thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "planner/catalogue.h"
#include "planner/preflight/flag_table.h"

namespace perigee::planner {

struct EngineFacts {
  std::string engine, version, flags, keys, cann;
  std::vector<std::string> hdk;
  std::vector<std::string> additional_keys;  // accepted although no static reading found them
  std::vector<std::string> forbidden_keys;   // computed by the engine, refused from users
};

struct ChipFacts {
  std::string name;
  std::vector<std::string> match;
  std::string hardware;  // entry of hardware.yaml
  std::int64_t devices = 0;
  std::vector<std::string> images;           // image tag endings of this chip
  std::vector<std::string> formats_refused;  // weight formats that it cannot load
  std::vector<std::string> container_devices;
  bool whole_driver = false;  // a container needs the whole driver folder
  bool die_pairs = false;
};

struct ModelFacts {
  std::string name;  // as found
  std::string shape_name;
  const ModelShape* shape = nullptr;
  std::string native;  // format as released
  std::string format;  // of this checkpoint, from its name; `native` when the name says nothing
  std::string needs;   // first vllm-ascend version, "" unknown
  bool sparse = false;
  bool guide_without_aiv_on_a2 = false;
  double load_tb = 0;
  std::vector<std::string> tool, reasoning, sglang_tool, sglang_reasoning;

  bool hybrid() const { return shape != nullptr && shape->kda_layers > 0; }
  bool mla() const { return shape != nullptr && shape->attention.kind == AttentionKind::kMla; }
  std::int64_t heads() const { return shape == nullptr ? 0 : shape->attention.heads; }
  std::int64_t experts() const { return shape == nullptr ? 0 : shape->moe.experts; }
  std::int64_t top_k() const { return shape == nullptr ? 0 : shape->moe.top_k; }
  // Width of what dispatch and combine move.
  std::int64_t moe_width() const {
    if (shape == nullptr) return 0;
    return shape->moe.latent > 0 ? shape->moe.latent : shape->hidden;
  }
};

struct RuleFacts {
  std::string id, name, title, source;
};

struct PreflightFacts {
  std::vector<EngineFacts> engines;
  std::vector<ChipFacts> chips;
  std::vector<RuleFacts> rules;
  std::map<std::string, std::string, std::less<>> removed_flags, moved_environment, removed_keys, removed_connectors;
  std::vector<std::string> known_environment, npu_resources;
  std::map<std::string, std::vector<std::string>, std::less<>> enum_names;  // keys that take the name of an enumeration

  // The newest entry that is not newer than `version`; the newest of all for "". nullptr: no such engine.
  const EngineFacts* engine(std::string_view engine, std::string_view version, bool& exact) const;
  const ChipFacts* chip(std::string_view name) const;
  // From a checkpoint's path or name; empty shape when it is not known.
  ModelFacts model(std::string_view path) const;
  const RuleFacts* rule(std::string_view id) const;

  struct ModelEntry {
    std::vector<std::string> match;
    ModelFacts facts;
  };
  std::vector<ModelEntry> models;
  std::vector<std::pair<std::string, std::string>> formats;  // text in a name, format
};

const PreflightFacts& preflight_facts();

// -1, 0, 1 for versions such as 0.26.0rc1 < 0.26.0 < 0.30.0rc2; text that is no version counts as the oldest.
int compare_versions(std::string_view a, std::string_view b);

}  // namespace perigee::planner
