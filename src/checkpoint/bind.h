// Turns stored tensors into the typed views of ModelWeights. The format of each matrix is decided by what is stored
// under its name (spec 7.1-7.3), never by what config.json says about quantisation.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/inventory.h"
#include "checkpoint/tensor.h"

namespace perigee {

struct BindResult {
  std::vector<std::string> warnings;
  std::vector<std::unique_ptr<std::byte[]>> copies;  // bytes of tensors that are not aligned in their file
  bool vision_found = false;
};

// Fills the destinations of `specs` from `table` and checks that each tensor of the table belongs to the model.
// `files` names the files that TensorView::file counts. Errors name file, tensor, expected and found.
// `extra_layers_from`: tensors of layers with this number and beyond (draft layers) are ignored; -1: none are.
Result<BindResult> bind_tensors(const std::vector<TensorSpec>& specs, const TensorTable& table,
                                const std::vector<std::string>& files, std::int64_t extra_layers_from);

}  // namespace perigee
