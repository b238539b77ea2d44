// SGLang on Ascend: rules 8.43, 8.44 and its companions (8.6, 8.32) of spec ascend.md section 3.
#include <fmt/format.h>

#include <algorithm>

#include "planner/preflight/server.h"

namespace perigee::planner {

void Rules::sglang(const Server& server) {
  if (!server.sglang()) return;
  const Launch& launch = *server.launch;
  const auto tp = server.tp.get(1);
  const auto dp = server.dp.get(1);
  const bool attention_dp = launch.flag("--enable-dp-attention");
  const bool npu =
      launch.text("--device") == "npu" || launch.text("--attention-backend") == "ascend" || server.chip != nullptr;
  if (attention_dp && tp && dp && *dp > 0 && *tp % *dp != 0) {
    report(server, "8.32", Severity::kError, server.line_of(server.dp),
           fmt::format("With --enable-dp-attention tp-size {} must be a multiple of dp-size {}.", *tp, *dp),
           "a --dp-size that divides --tp-size");
  }
  if (launch.flag("--enable-dp-lm-head") && !attention_dp && !launch.open) {
    report(server, "8.32", Severity::kError, launch.argument("--enable-dp-lm-head")->line,
           "--enable-dp-lm-head needs --enable-dp-attention.", "add --enable-dp-attention");
  }
  const Argument* mode = launch.argument("--deepep-mode");
  const std::string a2a = launch.text("--moe-a2a-backend");
  if (mode != nullptr && a2a != "deepep" && !launch.open &&
      (launch.argument("--moe-a2a-backend") == nullptr || !a2a.empty())) {
    report(server, "8.30", Severity::kWarning, mode->line,
           "--deepep-mode has no effect without --moe-a2a-backend deepep.", "add --moe-a2a-backend deepep");
  }
  const auto env_number = [&](const char* name) -> std::optional<std::int64_t> {
    const Setting* setting = launch.env(name);
    return setting == nullptr ? std::nullopt : human_integer(setting->text.value);
  };
  // Rule 8.44: tokens a rank against the size of the low-latency buffers.
  const char* cap_name = "SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK";
  const Setting* cap_setting = launch.env(cap_name);
  const auto cap = cap_setting == nullptr ? std::optional<std::int64_t>(128) : human_integer(cap_setting->text.value);
  if (cap && *cap > 512 && cap_setting != nullptr) {
    report(server, "8.6", Severity::kError, cap_setting->line,
           fmt::format("Dispatch takes at most 512 tokens a rank, not {}.", *cap),
           fmt::format("export {}=512", cap_name));
  }
  const bool low_latency = a2a == "deepep" && launch.text("--deepep-mode") != "normal" && !server.prefill();
  const auto drafts = server.drafts.get(0);
  if (low_latency && attention_dp && cap && dp && *dp > 0 && drafts && server.sequences.known() &&
      (cap_setting != nullptr || !launch.environment_open)) {
    const std::int64_t requests = (server.sequences.value + *dp - 1) / *dp;
    const std::int64_t tokens = requests * (1 + *drafts);
    if (tokens > *cap) {
      report(
          server, "8.44", Severity::kError,
          cap_setting != nullptr ? cap_setting->line : server.line_of(server.sequences),
          fmt::format(
              "{} requests over DP{} are {} a rank, times {} verified tokens = {} > {}: the dispatch assertion stops "
              "the server under load.",
              server.sequences.value, *dp, requests, 1 + *drafts, tokens, *cap),
          fmt::format("export {}={}", cap_name, tokens));
    }
  }
  const auto rounds = env_number("DEEPEP_NORMAL_LONG_SEQ_ROUND");
  const auto per_round = env_number("DEEPEP_NORMAL_LONG_SEQ_PER_ROUND_TOKENS");
  const auto range = [&](const char* name, std::optional<std::int64_t> value, std::int64_t low, std::int64_t high) {
    if (!value || (*value >= low && *value <= high)) return;
    report(server, "8.44", Severity::kError, launch.env(name)->line,
           fmt::format("{}={} is outside {} to {}.", name, *value, low, high), fmt::format("export {}={}", name, high));
  };
  range("DEEPEP_NORMAL_LONG_SEQ_ROUND", rounds, 1, 256);
  range("DEEPEP_NORMAL_LONG_SEQ_PER_ROUND_TOKENS", per_round, 32, 8192);
  if (rounds && per_round && *rounds >= 1 && *rounds <= 256 && *per_round >= 32 && *per_round <= 8192 &&
      *rounds * *per_round > 131072) {
    report(server, "8.44", Severity::kError, launch.env("DEEPEP_NORMAL_LONG_SEQ_PER_ROUND_TOKENS")->line,
           fmt::format("{} rounds of {} tokens are more than 131072.", *rounds, *per_round),
           fmt::format("export DEEPEP_NORMAL_LONG_SEQ_PER_ROUND_TOKENS={}", 131072 / *rounds));
  }
  // Rule 8.43
  if (!server.disaggregated()) return;
  const Argument* backend = launch.argument("--disaggregation-transfer-backend");
  const std::string name = launch.text("--disaggregation-transfer-backend");
  if (npu && !launch.open && (backend == nullptr || (!name.empty() && name != "ascend"))) {
    report(server, "8.43", Severity::kError,
           backend != nullptr ? backend->value_line() : launch.argument("--disaggregation-mode")->line,
           backend == nullptr
               ? std::string("Without --disaggregation-transfer-backend the default is mooncake, which does not move "
                             "caches between NPUs.")
               : fmt::format("The transfer backend {} does not move caches between NPUs.", name),
           "--disaggregation-transfer-backend ascend");
  }
  const Setting* store = launch.env("ASCEND_MF_STORE_URL");
  if (npu && store == nullptr && !launch.environment_open && launch.container < 0) {
    report(server, "8.43", Severity::kError, server.line(),
           "ASCEND_MF_STORE_URL is not set: prefill and decode servers find each other through it.",
           "export ASCEND_MF_STORE_URL=\"tcp://PREFILL_ADDRESS:24669\"");
  }
  const Setting* protocol = launch.env("ASCEND_MF_TRANSFER_PROTOCOL");
  if (server.chip_is("a2") && !launch.environment_open &&
      (protocol == nullptr || (protocol->text.value != "device_rdma" && !protocol->text.unknown()))) {
    report(server, "8.43", Severity::kError, protocol != nullptr ? protocol->line : server.line(),
           "On A2 the transfer runs over device RDMA and has to be told so.",
           "export ASCEND_MF_TRANSFER_PROTOCOL=device_rdma");
  }
}

void Rules::sglang_pd() {
  for (std::size_t i = 0; i < servers_.size(); ++i) {
    for (std::size_t j = i + 1; j < servers_.size(); ++j) {
      const Server& a = servers_[i];
      const Server& b = servers_[j];
      if (!a.sglang() || !b.sglang() || !a.disaggregated() || !b.disaggregated()) continue;
      const std::string left = a.launch->env_text("ASCEND_MF_STORE_URL");
      const std::string right = b.launch->env_text("ASCEND_MF_STORE_URL");
      if (!left.empty() && !right.empty() && left != right) {
        report(b, "8.43", Severity::kError, b.launch->env("ASCEND_MF_STORE_URL")->line,
               fmt::format("The store is {} here and {} in {}; all servers share one.", right, left, a.launch->file),
               fmt::format("export ASCEND_MF_STORE_URL=\"{}\"", left));
      }
      if (a.role == b.role) continue;
      const Server& prefill = a.prefill() ? a : b;
      const Server& decode = a.prefill() ? b : a;
      const auto p_pp = prefill.pp.get(1);
      const auto d_pp = decode.pp.get(1);
      if (p_pp && d_pp && *d_pp != 1 && *d_pp != *p_pp) {
        report(decode, "8.43", Severity::kError, decode.line_of(decode.pp),
               fmt::format("Decode pp-size {} must be 1 or that of prefill ({}).", *d_pp, *p_pp), "--pp-size 1");
      }
      const auto p_tp = prefill.tp.get(1);
      const auto d_tp = decode.tp.get(1);
      if (p_tp && d_tp && *p_tp != *d_tp && prefill.model.shape != nullptr && !prefill.model.mla()) {
        report(decode, "8.43", Severity::kError, decode.line_of(decode.tp),
               fmt::format("Different TP on prefill ({}) and decode ({}) works for MLA models only.", *p_tp, *d_tp),
               fmt::format("--tp-size {}", *p_tp));
      }
      if (prefill.model.name != decode.model.name && prefill.launch->model && decode.launch->model &&
          !prefill.launch->model->text.unknown() && !decode.launch->model->text.unknown()) {
        report(b, "8.12", Severity::kError, b.launch->model->line(),
               fmt::format("This side serves {}, the other one {}.", b.model.name, a.model.name),
               fmt::format("the same checkpoint, {}", a.model.name));
      }
    }
  }
}

}  // namespace perigee::planner
