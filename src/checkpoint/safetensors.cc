#include "checkpoint/safetensors.h"

#include <simdjson.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/checked.h"
#include "base/numeric.h"

namespace perigee {
namespace {

static_assert(std::endian::native == std::endian::little, "views point at little-endian file bytes");

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the reference library's limit

// Names come from the file: shown escaped and cut, so that a message stays one line.
std::string printable(std::string_view name) {
  std::string text;
  for (const char c : name.substr(0, 200)) text += (c >= ' ' && c <= '~') ? c : '?';
  if (name.size() > 200) text += "...";
  return text;
}

Result<Shape> read_shape(std::string_view name, const simdjson::dom::element& value) {
  simdjson::dom::array extents;
  if (value.get(extents) != simdjson::SUCCESS) {
    return data_loss("tensor {}: shape: expected a list", printable(name));
  }
  Shape shape;
  std::int64_t elements = 1;
  for (const simdjson::dom::element item : extents) {
    std::int64_t extent = 0;
    if (item.get(extent) != simdjson::SUCCESS || extent < 0) {
      return data_loss("tensor {}: shape: expected integers >= 0", printable(name));
    }
    if (shape.rank() == Shape::kMaxRank) {
      return data_loss("tensor {}: shape: expected at most {} axes, found {}", printable(name), Shape::kMaxRank,
                       extents.size());
    }
    // Zero extents must not hide an overflow of the others.
    const auto product = checked_mul(elements, std::max<std::int64_t>(extent, 1));
    if (!product || *product > (std::int64_t{1} << 59)) {
      return data_loss("tensor {}: shape: expected fewer than 2^59 elements", printable(name));
    }
    elements = *product;
    shape.push_back(extent);
  }
  return shape;
}

Result<SafetensorsHeader::Entry> read_entry(std::string_view name, const simdjson::dom::element& value,
                                            std::uint64_t data_begin, std::uint64_t data_size) {
  simdjson::dom::object object;
  if (value.get(object) != simdjson::SUCCESS) {
    return data_loss("tensor {}: expected an object with dtype, shape and data_offsets", printable(name));
  }
  SafetensorsHeader::Entry entry;
  entry.name = name;
  std::string_view dtype;
  if (object["dtype"].get(dtype) != simdjson::SUCCESS) {
    return data_loss("tensor {}: dtype: expected a string", printable(name));
  }
  const auto parsed = parse_dtype(dtype);
  if (!parsed) {
    return make_error(StatusCode::kUnimplemented, "tensor {}: dtype: expected a known element type, found {}",
                      printable(name), printable(dtype));
  }
  entry.dtype = *parsed;
  simdjson::dom::element shape;
  if (object["shape"].get(shape) != simdjson::SUCCESS) {
    return data_loss("tensor {}: shape: expected a list", printable(name));
  }
  PERIGEE_ASSIGN_OR_RETURN(entry.shape, read_shape(name, shape));

  simdjson::dom::array offsets;
  if (object["data_offsets"].get(offsets) != simdjson::SUCCESS || offsets.size() != 2) {
    return data_loss("tensor {}: data_offsets: expected two integers", printable(name));
  }
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  if (offsets.at(0).get(begin) != simdjson::SUCCESS || offsets.at(1).get(end) != simdjson::SUCCESS) {
    return data_loss("tensor {}: data_offsets: expected two integers >= 0", printable(name));
  }
  if (begin > end || end > data_size) {
    return data_loss("tensor {}: data_offsets: expected begin <= end <= {} (the file's data), found [{}, {}]",
                     printable(name), data_size, begin, end);
  }
  const auto expected = static_cast<std::uint64_t>(entry.shape.elements() * dtype_bytes(entry.dtype));
  if (end - begin != expected) {
    return data_loss("tensor {}: data_offsets: expected {} bytes for {} {}, found {}", printable(name), expected,
                     dtype_name(entry.dtype), entry.shape.to_string(), end - begin);
  }
  entry.offset = data_begin + begin;
  entry.bytes = end - begin;
  return entry;
}

Status check_extents(SafetensorsHeader& header, std::uint64_t file_size) {
  std::ranges::sort(header.tensors, [](const auto& a, const auto& b) {
    return a.offset != b.offset ? a.offset < b.offset : a.bytes < b.bytes;
  });
  std::uint64_t covered = header.data_begin;
  const SafetensorsHeader::Entry* previous = nullptr;
  for (const SafetensorsHeader::Entry& entry : header.tensors) {
    if (entry.bytes == 0) continue;
    if (entry.offset < covered) {
      return data_loss("tensor {}: data_offsets: expected bytes of its own, found an overlap with tensor {}",
                       printable(entry.name), previous == nullptr ? "?" : printable(previous->name));
    }
    header.unused_bytes += entry.offset - covered;
    covered = entry.offset + entry.bytes;
    previous = &entry;
  }
  header.unused_bytes += file_size - covered;
  return {};
}

}  // namespace

Result<SafetensorsHeader> parse_safetensors_header(std::span<const std::byte> head, std::uint64_t file_size) {
  if (file_size < kLengthBytes || head.size() < kLengthBytes) {
    return data_loss("safetensors header: expected at least {} bytes, found {}", kLengthBytes, file_size);
  }
  std::uint64_t length = 0;
  std::memcpy(&length, head.data(), sizeof(length));
  if (length > kMaxHeaderBytes || length > file_size - kLengthBytes || length > head.size() - kLengthBytes) {
    return data_loss("safetensors header: expected a length of at most {}, found {}",
                     std::min(kMaxHeaderBytes, file_size - kLengthBytes), length);
  }
  simdjson::dom::parser parser;
  const std::string_view text(reinterpret_cast<const char*>(head.data()) + kLengthBytes, length);
  simdjson::dom::element document;
  if (const auto error = parser.parse(simdjson::padded_string(text)).get(document); error != simdjson::SUCCESS) {
    return data_loss("safetensors header: expected a JSON object: {}", simdjson::error_message(error));
  }
  simdjson::dom::object object;
  if (document.get(object) != simdjson::SUCCESS) return data_loss("safetensors header: expected a JSON object");

  SafetensorsHeader header;
  header.data_begin = kLengthBytes + length;
  const std::uint64_t data_size = file_size - header.data_begin;
  for (const auto [name, value] : object) {
    if (name == "__metadata__") {
      simdjson::dom::object metadata;
      if (value.get(metadata) != simdjson::SUCCESS) return data_loss("__metadata__: expected an object of strings");
      for (const auto [key, item] : metadata) {
        std::string_view string;
        if (item.get(string) != simdjson::SUCCESS) return data_loss("__metadata__: expected an object of strings");
        header.metadata.emplace(key, string);
      }
      continue;
    }
    PERIGEE_ASSIGN_OR_RETURN(auto entry, read_entry(name, value, header.data_begin, data_size));
    header.tensors.push_back(std::move(entry));
  }
  PERIGEE_RETURN_IF_ERROR(check_extents(header, file_size));
  return header;
}

Result<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  SafetensorsFile result;
  result.path_ = path;
  PERIGEE_ASSIGN_OR_RETURN(result.file_, MappedFile::open(path));
  const auto bytes = result.file_.bytes();
  auto header = parse_safetensors_header(bytes, bytes.size());
  if (!header.ok()) return header.status().with_context(path);
  result.header_ = *std::move(header);
  std::vector<TensorView> views;
  views.reserve(result.header_.tensors.size());
  for (const auto& entry : result.header_.tensors) {
    views.push_back({entry.name, entry.dtype, entry.shape, bytes.subspan(entry.offset, entry.bytes)});
  }
  auto table = TensorTable::build(std::move(views));
  if (!table.ok()) return table.status().with_context(path);
  result.tensors_ = *std::move(table);
  return result;
}

template <typename T>
Result<std::span<const T>> SafetensorsFile::elements(std::string_view name) const {
  constexpr Dtype kWanted = std::is_same_v<T, float>          ? Dtype::kF32
                            : std::is_same_v<T, double>       ? Dtype::kF64
                            : std::is_same_v<T, std::int32_t> ? Dtype::kI32
                            : std::is_same_v<T, bf16>         ? Dtype::kBf16
                                                              : Dtype::kU8;
  const TensorView* view = find(name);
  if (view == nullptr) return make_error(StatusCode::kNotFound, "{}: no tensor {}", path_, name);
  if (view->dtype != kWanted) {
    return invalid_argument("{}: tensor {}: expected dtype {}, found {}", path_, name, dtype_name(kWanted),
                            dtype_name(view->dtype));
  }
  if (!view->aligned()) return invalid_argument("{}: tensor {}: elements are not aligned", path_, name);
  return std::span<const T>(reinterpret_cast<const T*>(view->data.data()), view->data.size() / sizeof(T));
}

template Result<std::span<const float>> SafetensorsFile::elements<float>(std::string_view) const;
template Result<std::span<const double>> SafetensorsFile::elements<double>(std::string_view) const;
template Result<std::span<const std::int32_t>> SafetensorsFile::elements<std::int32_t>(std::string_view) const;
template Result<std::span<const std::uint8_t>> SafetensorsFile::elements<std::uint8_t>(std::string_view) const;
template Result<std::span<const bf16>> SafetensorsFile::elements<bf16>(std::string_view) const;

}  // namespace perigee
