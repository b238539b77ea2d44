#include "checkpoint/bind.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "base/checked.h"
#include "base/numeric.h"

namespace perigee {
namespace {

constexpr std::int64_t kMaxCopiedBytes = std::int64_t{16} << 30;
constexpr std::int64_t kMaxPadding = 4096;  // of A_log
constexpr std::size_t kNamedTensors = 4;    // how many missing or unknown tensors a message lists

Shape without_unit_axes(const Shape& shape) {
  Shape result;
  for (std::size_t axis = 0; axis < shape.rank(); ++axis) {
    if (shape[axis] != 1) result.push_back(shape[axis]);
  }
  return result;
}

// "…self_attn.q_conv1d.weight" -> "q_conv1d".
std::string leaf_name(const std::string& name) {
  const std::string module = replace_weight(name, "");
  return module.substr(module.rfind('.') + 1);
}

ScaleFormat scale_format(Dtype dtype) {
  switch (dtype) {
    case Dtype::kBf16:
      return ScaleFormat::kBf16;
    case Dtype::kF16:
      return ScaleFormat::kF16;
    case Dtype::kF32:
      return ScaleFormat::kF32;
    case Dtype::kU8:
    case Dtype::kF8E8M0:
      return ScaleFormat::kE8m0;
    default:
      return ScaleFormat::kNone;
  }
}

// The group size g with ceil(columns / g) == scales: exact where it divides, else a power of two. 0: there is none.
std::int64_t group_size(std::int64_t columns, std::int64_t scales) {
  if (scales <= 0 || scales > columns) return 0;
  if (scales == 1) return columns;
  if (columns % scales == 0) return columns / scales;
  for (std::int64_t group = 16; group <= 1024; group *= 2) {
    if (ceil_div(columns, group) == scales) return group;
  }
  return 0;
}

class Binder {
 public:
  Binder(const TensorTable& table, const std::vector<std::string>& files)
      : table_(table), files_(files), used_(table.size(), false) {}

  Status bind(const std::vector<TensorSpec>& specs) {
    for (const TensorSpec& spec : specs) {
      switch (spec.use) {
        case TensorUse::kPlainMatrix:
        case TensorUse::kMatrix:
          PERIGEE_RETURN_IF_ERROR(bind_matrix(spec));
          break;
        case TensorUse::kUnread:
          PERIGEE_RETURN_IF_ERROR(check_unread(spec));
          break;
        default:
          PERIGEE_RETURN_IF_ERROR(bind_vector(spec));
      }
    }
    if (vision_missing_ > 0 && vision_found_) {
      return data_loss("{} of {} vision tensors are missing, the first is {}", vision_missing_,
                       vision_missing_ + vision_found_, first_missing_vision_);
    }
    if (missing_count_ > 0) {
      return data_loss("{} expected tensors are in no file: {}{}", missing_count_, fmt::join(missing_, ", "),
                       missing_count_ > missing_.size() ? ", ..." : "");
    }
    return {};
  }

  // Tensors that nothing asked for: config.json and the shards contradict each other, and running would be a guess.
  Status check_unknown(std::int64_t extra_layers_from) {
    std::vector<std::string> unknown;
    std::size_t count = 0;
    for (std::size_t i = 0; i < table_.size(); ++i) {
      if (used_[i] || ignorable(table_[i], extra_layers_from)) continue;
      ++count;
      if (unknown.size() < kNamedTensors) {
        unknown.push_back(fmt::format("{} {} {} in {}", table_[i].name, dtype_name(table_[i].dtype),
                                      table_[i].shape.to_string(), file_of(table_[i])));
      }
    }
    if (count == 0) return {};
    return data_loss("{} tensors do not belong to the model that config.json describes: {}{}", count,
                     fmt::join(unknown, ", "), count > unknown.size() ? ", ..." : "");
  }

  BindResult finish() {
    for (const auto& [name, count] : lowered_) {
      result_.warnings.push_back(
          fmt::format("{} tensors {} are stored in less than F32, as released; widened", count, name));
    }
    for (const auto& [what, count] : ignored_) {
      result_.warnings.push_back(fmt::format("{} tensors ignored: {}", count, what));
    }
    if (copied_ > 0) {
      result_.warnings.push_back(fmt::format("{} bytes are not aligned in their files and were copied", copied_));
    }
    result_.vision_found = vision_found_ > 0;
    return std::move(result_);
  }

 private:
  const std::string& file_of(const TensorView& view) const { return files_[view.file]; }

  const TensorView* take(const std::string& name) {
    const TensorView* view = table_.find(name);
    if (view != nullptr) used_[static_cast<std::size_t>(view - &table_[0])] = true;
    return view;
  }

  Status refuse(const TensorView& view, std::string_view expected, std::string_view found) const {
    return data_loss("{}: tensor {}: expected {}, found {}", file_of(view), view.name, expected, found);
  }
  Status unsupported(const TensorView& view, std::string_view what) const {
    return make_error(StatusCode::kUnimplemented, "{}: tensor {}: {} is not supported", file_of(view), view.name, what);
  }

  Status expect_shape(const TensorView& view, const Shape& shape) const {
    if (view.shape == shape) return {};
    return refuse(view, "shape " + shape.to_string(), view.shape.to_string());
  }

  void missing(const std::string& name) {
    ++missing_count_;
    if (missing_.size() < kNamedTensors) missing_.push_back(name);
  }

  bool ignorable(const TensorView& view, std::int64_t extra_layers_from) {
    if (view.name.ends_with(".input_scale")) {
      // Static scale of activations in W4AFP8 exports: activations are not quantised here (spec 7.2).
      ++ignored_["scales of quantised activations (input_scale)"];
      return true;
    }
    if (extra_layers_from >= 0) {
      const std::size_t at = view.name.find("layers.");
      if (at != std::string::npos && std::atoll(view.name.c_str() + at + 7) >= extra_layers_from) {
        ++ignored_["draft layers after the last one"];
        return true;
      }
    }
    return false;
  }

  // The bytes of a tensor at an address that its elements need.
  Result<const std::byte*> place(const TensorView& view) {
    if (view.aligned()) return view.data.data();
    copied_ += static_cast<std::int64_t>(view.data.size());
    if (copied_ > kMaxCopiedBytes) {
      return make_error(StatusCode::kResourceExhausted,
                        "{}: tensor {}: expected aligned elements, found offset {} mod 8", file_of(view), view.name,
                        reinterpret_cast<std::uintptr_t>(view.data.data()) % 8);
    }
    auto& copy = result_.copies.emplace_back(std::make_unique_for_overwrite<std::byte[]>(view.data.size()));
    std::memcpy(copy.get(), view.data.data(), view.data.size());
    return copy.get();
  }

  Status bind_matrix(const TensorSpec& spec) {
    if (const TensorView* packed = take(replace_weight(spec.name, ".weight_packed")); packed != nullptr) {
      if (spec.use == TensorUse::kPlainMatrix) return unsupported(*packed, "a quantised form of this tensor");
      return packed->dtype == Dtype::kU8 ? bind_mxfp4(spec, *packed) : bind_integer(spec, *packed);
    }
    const TensorView* view = take(spec.name);
    if (view == nullptr) {
      missing(spec.name);
      return {};
    }
    if (view->dtype == Dtype::kF8E4M3 && spec.use == TensorUse::kMatrix) return bind_fp8(spec, *view);
    if (view->dtype != Dtype::kBf16 && view->dtype != Dtype::kF32) {
      return unsupported(*view, fmt::format("a matrix stored as {}", dtype_name(view->dtype)));
    }
    Shape shape = spec.shape;
    if (spec.other_columns > 0 && view->shape.rank() == 2 && view->shape[1] == spec.other_columns) {
      shape = {spec.shape[0], spec.other_columns};
    }
    PERIGEE_RETURN_IF_ERROR(expect_shape(*view, shape));
    if (spec.matrix == nullptr) return {};
    PERIGEE_ASSIGN_OR_RETURN(spec.matrix->data, place(*view));
    spec.matrix->format = view->dtype == Dtype::kF32 ? WeightFormat::kF32 : WeightFormat::kBf16;
    spec.matrix->rows = shape[0];
    spec.matrix->cols = shape[1];
    spec.matrix->row_bytes = shape[1] * dtype_bytes(view->dtype);
    return {};
  }

  Status bind_mxfp4(const TensorSpec& spec, const TensorView& packed) {
    if (take(replace_weight(spec.name, ".weight_global_scale")) != nullptr) {
      return unsupported(packed, "NVFP4 (weight_global_scale)");
    }
    const std::int64_t rows = spec.shape[0];
    const std::int64_t columns = spec.shape[1];
    if (columns % 32 != 0)
      return unsupported(packed, fmt::format("MXFP4 with {} columns (no multiple of 32)", columns));
    PERIGEE_RETURN_IF_ERROR(expect_shape(packed, {rows, columns / 2}));
    PERIGEE_ASSIGN_OR_RETURN(const TensorView* scale, companion(spec, packed, ".weight_scale"));
    if (scale->dtype == Dtype::kF8E4M3) return unsupported(*scale, "NVFP4 (E4M3 scales)");
    if (scale_format(scale->dtype) != ScaleFormat::kE8m0) {
      return refuse(*scale, "dtype U8 (E8M0 scales)", dtype_name(scale->dtype));
    }
    PERIGEE_RETURN_IF_ERROR(expect_shape(*scale, {rows, columns / 32}));
    if (spec.matrix == nullptr) return {};
    *spec.matrix = {.format = WeightFormat::kMxfp4,
                    .scale_format = ScaleFormat::kE8m0,
                    .rows = rows,
                    .cols = columns,
                    .data = packed.data.data(),
                    .row_bytes = columns / 2,
                    .scales = scale->data.data(),
                    .scale_row_bytes = columns / 32,
                    .group = 32};
    return {};
  }

  Status bind_integer(const TensorSpec& spec, const TensorView& packed) {
    if (packed.dtype != Dtype::kI32) return refuse(packed, "dtype I32 or U8", dtype_name(packed.dtype));
    for (const char* suffix : {".weight_zero_point", ".weight_g_idx"}) {
      if (const TensorView* extra = take(replace_weight(spec.name, suffix)); extra != nullptr) {
        return unsupported(*extra, "asymmetric or reordered integer quantisation");
      }
    }
    const std::int64_t rows = spec.shape[0];
    const std::int64_t columns = spec.shape[1];
    const Shape int4{rows, ceil_div<std::int64_t>(columns, 8)};
    const Shape int8{rows, ceil_div<std::int64_t>(columns, 4)};
    if (packed.shape != int4 && packed.shape != int8) {
      return refuse(packed, fmt::format("shape {} (INT4) or {} (INT8)", int4.to_string(), int8.to_string()),
                    packed.shape.to_string());
    }
    PERIGEE_ASSIGN_OR_RETURN(const TensorView* scale, companion(spec, packed, ".weight_scale"));
    const ScaleFormat format = scale_format(scale->dtype);
    if (format == ScaleFormat::kNone || format == ScaleFormat::kE8m0) {
      return refuse(*scale, "dtype BF16, F16 or F32", dtype_name(scale->dtype));
    }
    if (scale->shape.rank() != 2 || scale->shape[0] != rows || group_size(columns, scale->shape[1]) == 0) {
      return refuse(*scale, fmt::format("shape [{}, scales of {} columns]", rows, columns), scale->shape.to_string());
    }
    if (const TensorView* shape = take(replace_weight(spec.name, ".weight_shape")); shape != nullptr) {
      PERIGEE_RETURN_IF_ERROR(check_stored_shape(*shape, rows, columns));
    }
    if (spec.matrix == nullptr) return {};
    *spec.matrix = {.format = packed.shape == int4 ? WeightFormat::kInt4Group : WeightFormat::kInt8Group,
                    .scale_format = format,
                    .rows = rows,
                    .cols = columns,
                    .row_bytes = packed.shape[1] * 4,
                    .scale_row_bytes = scale->shape[1] * dtype_bytes(scale->dtype),
                    .group = group_size(columns, scale->shape[1])};
    PERIGEE_ASSIGN_OR_RETURN(spec.matrix->data, place(packed));
    PERIGEE_ASSIGN_OR_RETURN(spec.matrix->scales, place(*scale));
    return {};
  }

  Status bind_fp8(const TensorSpec& spec, const TensorView& view) {
    PERIGEE_RETURN_IF_ERROR(expect_shape(view, spec.shape));
    const TensorView* scale = take(replace_weight(spec.name, ".weight_scale_inv"));
    if (scale == nullptr) {
      PERIGEE_ASSIGN_OR_RETURN(scale, companion(spec, view, ".weight_scale"));
    }
    const Shape blocks{ceil_div<std::int64_t>(spec.shape[0], 128), ceil_div<std::int64_t>(spec.shape[1], 128)};
    if (scale->dtype != Dtype::kF32 && scale->dtype != Dtype::kBf16) {
      return refuse(*scale, "dtype F32 or BF16", dtype_name(scale->dtype));
    }
    if (scale->shape != blocks) {
      return refuse(*scale, fmt::format("shape {} (128 x 128 blocks)", blocks.to_string()), scale->shape.to_string());
    }
    if (spec.matrix == nullptr) return {};
    *spec.matrix = {.format = WeightFormat::kFp8Block,
                    .scale_format = scale_format(scale->dtype),
                    .rows = spec.shape[0],
                    .cols = spec.shape[1],
                    .data = view.data.data(),
                    .row_bytes = spec.shape[1],
                    .scale_row_bytes = blocks[1] * dtype_bytes(scale->dtype),
                    .group = 128};
    PERIGEE_ASSIGN_OR_RETURN(spec.matrix->scales, place(*scale));
    return {};
  }

  Result<const TensorView*> companion(const TensorSpec& spec, const TensorView& of, std::string_view suffix) {
    const TensorView* view = take(replace_weight(spec.name, suffix));
    if (view == nullptr) return refuse(of, fmt::format("a companion {}", suffix), "none");
    return view;
  }

  Status check_stored_shape(const TensorView& view, std::int64_t rows, std::int64_t columns) const {
    std::int64_t stored[2] = {0, 0};
    if (view.shape != Shape{2} || (view.dtype != Dtype::kI32 && view.dtype != Dtype::kI64)) {
      return refuse(view, "I32 or I64 [2]", fmt::format("{} {}", dtype_name(view.dtype), view.shape.to_string()));
    }
    for (std::size_t i = 0; i < 2; ++i) {
      if (view.dtype == Dtype::kI64) {
        std::memcpy(&stored[i], view.data.data() + i * 8, 8);
      } else {
        std::int32_t value = 0;
        std::memcpy(&value, view.data.data() + i * 4, 4);
        stored[i] = value;
      }
    }
    if (stored[0] == rows && stored[1] == columns) return {};
    return refuse(view, fmt::format("the values {}, {}", rows, columns), fmt::format("{}, {}", stored[0], stored[1]));
  }

  Status check_unread(const TensorSpec& spec) {
    const TensorView* view = take(spec.name);
    if (view == nullptr) {
      if (vision_missing_++ == 0) first_missing_vision_ = spec.name;
      return {};
    }
    ++vision_found_;
    return expect_shape(*view, spec.shape);
  }

  Status bind_vector(const TensorSpec& spec) {
    const TensorView* view = take(spec.name);
    if (view == nullptr) {
      if (!spec.optional) missing(spec.name);
      return {};
    }
    // Unit axes carry nothing: [P, 1, 4] and [P, 4], [1, 1, H, 1] and [H] are both in use (spec 2.2, 10).
    const Shape found = without_unit_axes(view->shape);
    const Shape expected = without_unit_axes(spec.shape);
    const bool padded = spec.use == TensorUse::kDecay;
    const std::int64_t heads = spec.rule.meaningful;
    if (padded ? found.rank() > 1 || view->shape.elements() < heads || view->shape.elements() > heads + kMaxPadding
               : found != expected) {
      return refuse(
          *view, padded ? fmt::format("a vector of {} elements, or zeros after them", heads) : spec.shape.to_string(),
          view->shape.to_string());
    }
    FloatVector values;
    PERIGEE_RETURN_IF_ERROR(widen(*view, values));
    if (spec.keep_f32 && view->dtype != Dtype::kF32) ++lowered_[leaf_name(spec.name)];
    if (padded) {
      for (std::size_t i = static_cast<std::size_t>(heads); i < values.size(); ++i) {
        if (values[i] != 0.0F) {
          return refuse(*view, fmt::format("zeros from element {} on (padding after the heads)", heads),
                        fmt::format("{} at element {}", values[i], i));
        }
      }
      values.resize(static_cast<std::size_t>(heads));
      for (float& value : values) value = std::exp(value);
    }
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (!std::isfinite(values[i])) return refuse(*view, "finite values", fmt::format("{} at {}", values[i], i));
    }
    if (spec.vector != nullptr) deliver(spec, values);
    return {};
  }

  static void deliver(const TensorSpec& spec, const FloatVector& values) {
    FloatVector& to = *spec.vector;
    if (spec.use == TensorUse::kFactor) {
      for (std::size_t i = 0; i < std::min(to.size(), values.size()); ++i) to[i] *= values[i];
      return;
    }
    const auto offset = static_cast<std::size_t>(spec.offset);
    to.resize(std::max(to.size(), offset + values.size()));
    std::ranges::copy(values, to.begin() + static_cast<std::ptrdiff_t>(offset));
  }

  Status widen(const TensorView& view, FloatVector& values) const {
    values.resize(static_cast<std::size_t>(view.shape.elements()));
    const std::byte* from = view.data.data();
    const bool half = view.dtype == Dtype::kF16;
    if (view.dtype == Dtype::kF32) {
      std::memcpy(values.data(), from, view.data.size());
    } else if (half || view.dtype == Dtype::kBf16) {
      for (std::size_t i = 0; i < values.size(); ++i) {
        std::uint16_t bits = 0;
        std::memcpy(&bits, from + i * 2, 2);
        values[i] = half ? half_to_float(bits) : to_float(bf16{bits});
      }
    } else {
      return refuse(view, "dtype F32, BF16 or F16", dtype_name(view.dtype));
    }
    return {};
  }

  const TensorTable& table_;
  const std::vector<std::string>& files_;
  std::vector<bool> used_;
  BindResult result_;
  std::vector<std::string> missing_;
  std::size_t missing_count_ = 0;
  std::int64_t vision_found_ = 0;
  std::int64_t vision_missing_ = 0;
  std::string first_missing_vision_;
  std::int64_t copied_ = 0;
  std::map<std::string, std::int64_t> lowered_;
  std::map<std::string, std::int64_t> ignored_;
};

}  // namespace

Result<BindResult> bind_tensors(const std::vector<TensorSpec>& specs, const TensorTable& table,
                                const std::vector<std::string>& files, std::int64_t extra_layers_from) {
  Binder binder(table, files);
  PERIGEE_RETURN_IF_ERROR(binder.bind(specs));
  PERIGEE_RETURN_IF_ERROR(binder.check_unknown(extra_layers_from));
  return binder.finish();
}

}  // namespace perigee
