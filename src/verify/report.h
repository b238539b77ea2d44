// What a check found: one line a quantity, with its largest error beside the tolerance.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"

namespace perigee {

struct CheckLine {
  std::string config;    // golden folder
  std::string item;      // "p12", "layers", "greedy", "ops"
  std::string quantity;  // "logits", "kda_state", ...
  double worst = 0;      // in the unit of the tolerance
  double tolerance = 0;
  bool passed = false;
  std::string note;  // counts, and differences that the recorded margins allow
};

struct CheckReport {
  std::string title;  // path and precision
  std::vector<CheckLine> lines;

  bool passed() const;
  void add(CheckLine line) { lines.push_back(std::move(line)); }
  std::string to_table() const;
  Json to_json() const;
};

}  // namespace perigee
