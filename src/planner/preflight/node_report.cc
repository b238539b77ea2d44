#include "planner/preflight/node_report.h"

#include <algorithm>
#include <cctype>

namespace perigee::planner {

namespace {

constexpr std::size_t kMostReportEntries = 4096;

std::string lower_case(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return std::tolower(c); });
  return out;
}

std::string_view trimmed_cell(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r|");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r|") - begin + 1);
}

// The word that begins at `at`: a version or a number.
std::string report_word(std::string_view text, std::size_t at) {
  std::size_t end = at;
  while (end < text.size() && (std::isalnum(static_cast<unsigned char>(text[end])) != 0 || text[end] == '.')) ++end;
  return std::string(text.substr(at, end - at));
}

bool is_dotted_version(std::string_view text) {
  return !text.empty() && std::isdigit(static_cast<unsigned char>(text[0])) != 0 &&
         text.find('.') != std::string_view::npos;
}

void add_report_value(std::vector<Setting>& list, std::string value, int line) {
  if (list.size() < kMostReportEntries) list.push_back({Text(std::move(value), line), line});
}

void read_report_line(std::string_view raw, int line, bool version_file, NodeReport& out) {
  const std::string text = lower_case(trimmed_cell(raw));
  if (text.starts_with("super pod id") || text.starts_with("superpod id") || text.starts_with("super_pod_id")) {
    const std::size_t colon = text.find(':');
    const std::size_t at = colon == std::string::npos ? colon : text.find_first_not_of(' ', colon + 1);
    if (at != std::string::npos) add_report_value(out.superpods, report_word(text, at), line);
    return;
  }
  // The banner of npu-smi, and `npu-smi info -t board`.
  for (const std::string_view key : {"npu-smi ", "software version"}) {
    if (!text.starts_with(key)) continue;
    const std::size_t at = text.find_first_of("0123456789", key.size());
    if (at == std::string::npos) continue;
    const std::string version = report_word(text, at);
    if (is_dotted_version(version)) add_report_value(out.drivers, version, line);
    return;
  }
  if (version_file && text.starts_with("version=")) {
    const std::string version = report_word(text, 8);
    if (is_dotted_version(version)) add_report_value(out.drivers, version, line);
    return;
  }
  if (const std::size_t at = text.find("tls switch["); at != std::string::npos) {
    const char state = at + 11 < text.size() ? text[at + 11] : ' ';
    if ((state == '0' || state == '1') && out.tls.size() < kMostReportEntries) out.tls.emplace_back(state == '1', line);
    return;
  }
  if (text.starts_with("address_") && text.find('=') != std::string::npos) {
    add_report_value(out.addresses, report_word(text, text.find('=') + 1), line);
  }
}

}  // namespace

std::optional<NodeReport> read_node_report(const std::string& name, std::string_view content) {
  if (content.starts_with("#!")) return std::nullopt;
  NodeReport out;
  out.file = name;
  const bool version_file = content.find("ascendhal_version") != std::string_view::npos;
  int line = 0;
  for (std::size_t at = 0; at < content.size();) {
    std::size_t end = content.find('\n', at);
    if (end == std::string_view::npos) end = content.size();
    read_report_line(content.substr(at, end - at), ++line, version_file, out);
    at = end + 1;
  }
  if (out.empty()) return std::nullopt;
  return out;
}

}  // namespace perigee::planner
