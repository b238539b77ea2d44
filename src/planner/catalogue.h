// The planner's data files: hardware, models, engines. Built in, or read from a folder with the same file names.
// A Catalogue is immutable after loading and may be shared between threads.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "planner/model_shape.h"

namespace perigee::planner {

// A number with its origin. Confidence: H, M or L (data/README.md).
struct Sourced {
  double value = 0;
  std::string source;
  std::string confidence;
};

struct Chip {
  std::string name, family;
  Sourced memory_gb, usable_gib, memory_tb_s, bf16_tflops, int8_tops, fp4_tflops, node_link_gb_s, pod_link_gb_s;
  std::vector<std::string> weight_formats;

  double usable_bytes() const { return usable_gib.value * 1073741824.0; }
};

struct Node {
  std::string name, title, chip;
  Sourced devices, max_group_nodes, direct_transport_base_port, price_per_hour;
};

// Step-time numbers of one engine and version range, fitted on measurements.yaml (time_model.h says what each does).
struct EngineTimes {
  double host_ms = 0;         // a step: scheduler, sampling, host
  double graph_layer_ms = 0;  // a layer of a captured step
  double eager_layer_ms = 0;  // a layer launched operator by operator
  double compute = 1;         // share of the peak that matrix products reach
  double attention = 1;       // share of the BF16 peak in attention
  double memory = 1;          // share of the memory bandwidth
  double expert_link = 1;     // share of the link in dispatch and combine
  double tensor_link = 1;     // share of the link in all-reduces
};

struct EngineProfile {
  std::string name, versions, source, confidence;
  EngineTimes times;
  double transfer_ms = 0;                      // handshake of a prefill-to-decode transfer
  double interval_low = 1, interval_high = 1;  // the printed interval, as factors of the value
  // memory.h
  double group_buffer_mib = 0;  // of a communicator that does not follow HCCL_BUFFSIZE
  double communicators = 0;
  double runtime_gib = 0;
  double graph_gb_per_five = 0;
};

struct Catalogue {
  std::vector<Chip> chips;
  std::vector<Node> nodes;
  std::vector<ModelShape> models;
  std::vector<EngineProfile> engines;

  // Lookups name the nearest known entries when they fail.
  Result<const Chip*> chip(std::string_view name) const;
  Result<const Node*> node(std::string_view name) const;
  Result<const ModelShape*> model(std::string_view name) const;
  Result<const EngineProfile*> engine(std::string_view name) const;
};

// The text of a data file: built in, or DIR/name when a folder is given.
Result<std::string> catalogue_text(std::string_view name, const std::string& directory);

// `directory` empty: the built-in files.
Result<Catalogue> load_catalogue(const std::string& directory);

// The built-in catalogue; its files are checked by a test, so failure here is a build fault and ends in an empty
// catalogue that every lookup refuses.
const Catalogue& built_in_catalogue();

}  // namespace perigee::planner
