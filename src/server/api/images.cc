#include <nlohmann/json.hpp>

#include "server/api/parse_parts.h"

namespace perigee::api {
namespace {

constexpr std::size_t kMaxImages = 256;

// -1: not a base64 character.
int base64_value(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  if (c == '+' || c == '-') return 62;
  if (c == '/' || c == '_') return 63;
  return -1;
}

std::optional<std::string> decode_base64(std::string_view text) {
  while (!text.empty() && text.back() == '=') text.remove_suffix(1);
  if (text.size() % 4 == 1) return std::nullopt;
  std::string out;
  out.reserve(text.size() * 3 / 4);
  std::uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const int value = base64_value(c);
    if (value < 0) return std::nullopt;
    bits = bits << 6U | static_cast<std::uint32_t>(value);
    count += 6;
    if (count >= 8) {
      count -= 8;
      out.push_back(static_cast<char>(bits >> static_cast<unsigned>(count) & 0xFFU));
    }
  }
  return out;
}

// JPEG, PNG, WebP, GIF, BMP, TIFF, HEIF/AVIF by their first bytes; the decoder judges the rest.
bool looks_like_image(std::string_view bytes) {
  using namespace std::string_view_literals;
  for (const std::string_view magic :
       {"\xFF\xD8\xFF"sv, "\x89PNG\r\n\x1A\n"sv, "GIF87a"sv, "GIF89a"sv, "BM"sv, "II*\0"sv, "MM\0*"sv}) {
    if (bytes.starts_with(magic)) return true;
  }
  if (bytes.size() < 12) return false;
  return (bytes.starts_with("RIFF"sv) && bytes.substr(8, 4) == "WEBP"sv) || bytes.substr(4, 4) == "ftyp"sv;
}

}  // namespace

Json image_placeholder() {
  return {{"type", "image_url"}, {"image_url", {{"url", ""}}}};
}

void add_image_base64(std::string_view payload, const std::string& path, const ApiConfig& config,
                      std::vector<ImageInput>& images, MaybeError& error) {
  if (error) return;
  if (images.size() >= kMaxImages) {
    error = bad_field(path, "expected at most {} images in a request", kMaxImages);
    return;
  }
  if (payload.size() / 4 * 3 > static_cast<std::size_t>(config.max_image_bytes)) {
    error = bad_field(path, "expected an image of at most {} bytes", config.max_image_bytes);
    return;
  }
  auto bytes = decode_base64(payload);
  if (!bytes) {
    error = bad_field(path, "expected base64 data");
  } else if (!looks_like_image(*bytes)) {
    error = bad_field(path, "the data are no JPEG, PNG, WebP, GIF, BMP, TIFF, HEIF or AVIF image");
  } else {
    images.push_back({std::move(*bytes), path});
  }
}

void add_image(const std::string& url, const std::string& path, const ApiConfig& config,
               std::vector<ImageInput>& images, MaybeError& error) {
  if (error) return;
  const std::string_view view = url;
  if (view.starts_with("data:")) {
    const std::size_t comma = view.find(',');
    if (comma == std::string_view::npos || !view.substr(0, comma).ends_with(";base64")) {
      error = bad_field(path, "expected data:<type>;base64,<data>");
      return;
    }
    return add_image_base64(view.substr(comma + 1), path, config, images, error);
  }
  const bool remote = view.starts_with("http://") || view.starts_with("https://");
  error = remote ? bad_field(path, "this server fetches nothing from the network; send the image as a data: URL")
                 : bad_field(path, "expected a data: URL");
}

}  // namespace perigee::api
