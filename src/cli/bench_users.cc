// perigee bench users: the engine under several users, in this process, without HTTP.
//   warm   first token of a long history: cold, of the next turn from RAM, and after a restart from disk (--cache-dir)
//   batch  decode of one user against decode of many
//   gaps   users with histories whose turns overlap: time between two tokens of one answer
// Prompts are random ids. Each part prints a line; --json prints them all as one document.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "cli/bench.h"
#include "cli/exit_code.h"
#include "cli/model_source.h"

namespace perigee::cli {
namespace {

using Clock = std::chrono::steady_clock;

struct UsersArguments {
  EngineFlags engine;
  std::vector<std::string> parts = {"warm", "batch", "gaps"};
  std::int64_t prompt = 32768;
  std::int64_t users = 8;
  std::int64_t history = 8192;
  std::int64_t shared = 0;
  std::int64_t turns = 2;
  std::int64_t output = 48;
  bool json = false;
};

constexpr std::int64_t kNewTokens = 64;  // that a turn adds to its history

struct UserAnswer {
  std::vector<TokenId> tokens;
  std::vector<double> at;  // seconds since the request, a token
  std::int64_t restored = 0;
  Status error;
};

// Sends one request and waits for its end. Thread-safe: each call has its own state.
UserAnswer answer_of(Engine& engine, std::vector<TokenId> prompt, std::int64_t max_tokens, const std::string& tenant) {
  struct Waiting {
    std::mutex mutex;
    std::condition_variable done;
    bool finished = false;
    UserAnswer answer;
  };
  const auto waiting = std::make_shared<Waiting>();
  const Clock::time_point start = Clock::now();
  GenerationRequest request;
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  request.sampling.seed = 1;
  request.tenant = tenant;
  const auto handle = engine.submit(std::move(request), [waiting, start](TokenEvent&& event) {
    const std::lock_guard lock(waiting->mutex);
    if (event.id >= 0) {
      waiting->answer.tokens.push_back(event.id);
      waiting->answer.at.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    }
    if (event.finish != FinishReason::kNone) {
      waiting->answer.error = event.error;
      waiting->finished = true;
      waiting->done.notify_all();
    }
    return true;
  });
  if (!handle.ok()) return {.tokens = {}, .at = {}, .restored = 0, .error = handle.status()};
  std::unique_lock lock(waiting->mutex);
  waiting->done.wait(lock, [&] { return waiting->finished; });
  UserAnswer answer = std::move(waiting->answer);
  answer.restored = engine.cache_report(*handle).restored_tokens;
  if (answer.error.ok() && answer.tokens.empty())
    answer.error = make_error(StatusCode::kInternal, "an answer without tokens");
  return answer;
}

std::vector<TokenId> random_ids(std::int64_t count, std::int64_t vocab, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<TokenId> ids(static_cast<std::size_t>(count));
  // Below 100,000: ordinary text in every vocabulary of the family.
  const auto bound = static_cast<std::uint64_t>(std::min<std::int64_t>(vocab, 100'000));
  for (TokenId& id : ids) id = static_cast<TokenId>(random() % bound);
  return ids;
}

std::vector<TokenId> joined(std::vector<TokenId> front, const std::vector<TokenId>& back) {
  front.insert(front.end(), back.begin(), back.end());
  return front;
}

double quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(std::lround(q * static_cast<double>(values.size() - 1)))];
}

class UsersBench {
 public:
  explicit UsersBench(const UsersArguments& arguments) : arguments_(arguments) {}

  Status run() {
    PERIGEE_RETURN_IF_ERROR(open());
    for (const std::string& part : arguments_.parts) {
      if (part == "batch") PERIGEE_RETURN_IF_ERROR(batch());
      if (part == "gaps") PERIGEE_RETURN_IF_ERROR(gaps());
    }
    // Last: it closes the engine.
    if (std::find(arguments_.parts.begin(), arguments_.parts.end(), "warm") != arguments_.parts.end()) {
      PERIGEE_RETURN_IF_ERROR(warm());
    }
    if (arguments_.json) fmt::print("{}\n", report_.dump(1));
    return {};
  }

 private:
  Status open() {
    PERIGEE_ASSIGN_OR_RETURN(model_, load_model(arguments_.engine, arguments_.json));
    return {};
  }
  std::vector<TokenId> ids(std::int64_t count, std::uint64_t seed) const {
    return random_ids(count, model_.checkpoint->config().vocab, seed);
  }
  void say(const char* part, const Json& figures, const std::string& line) {
    report_[part] = figures;
    if (!arguments_.json) fmt::print("{:<6} {}\n", part, line);
    std::fflush(stdout);
  }

  // The first token of `turn`, sent behind `history`.
  Result<UserAnswer> next_turn(const std::vector<TokenId>& history, std::uint64_t seed) {
    UserAnswer answer = answer_of(*model_.engine, joined(history, ids(kNewTokens, seed)), 1, "warm");
    if (!answer.error.ok()) return answer.error;
    return answer;
  }

  Status warm() {
    const std::vector<TokenId> prompt = ids(arguments_.prompt, 1);
    const UserAnswer cold = answer_of(*model_.engine, prompt, 16, "warm");
    if (!cold.error.ok()) return cold.error;
    const std::vector<TokenId> history = joined(prompt, cold.tokens);
    double ram = 1e300;
    std::int64_t restored = 0;
    for (std::uint64_t turn = 0; turn < 3; ++turn) {
      PERIGEE_ASSIGN_OR_RETURN(const UserAnswer answer, next_turn(history, 100 + turn));
      ram = std::min(ram, answer.at.front());
      restored = answer.restored;
    }
    const double first = cold.at.front();
    Json figures = {{"prompt", arguments_.prompt}, {"cold_s", first}, {"ram_s", ram}, {"ram_restored", restored}};
    std::string line = fmt::format("{} tokens: cold {:.2f} s; next turn from RAM {:.3f} s = {:.2f} % ({} restored)",
                                   arguments_.prompt, first, ram, 100 * ram / first, restored);
    if (!arguments_.engine.cache_directory.empty()) {
      model_.engine->drain(60);
      model_ = {};
      PERIGEE_RETURN_IF_ERROR(open());
      PERIGEE_ASSIGN_OR_RETURN(const UserAnswer answer, next_turn(history, 200));
      figures["disk_s"] = answer.at.front();
      figures["disk_restored"] = answer.restored;
      line += fmt::format("; after a restart from disk {:.3f} s = {:.2f} % ({} restored)", answer.at.front(),
                          100 * answer.at.front() / first, answer.restored);
    }
    say("warm", figures, line);
    return {};
  }

  // Runs `each` for every user on a thread of its own and gives their answers.
  template <typename Each>
  Result<std::vector<UserAnswer>> together(std::int64_t users, const Each& each) {
    std::vector<UserAnswer> answers(static_cast<std::size_t>(users));
    std::vector<std::thread> threads;
    threads.reserve(answers.size());
    for (std::size_t user = 0; user < answers.size(); ++user) {
      threads.emplace_back([&, user] { answers[user] = each(user); });
    }
    for (std::thread& thread : threads) thread.join();
    for (const UserAnswer& answer : answers) PERIGEE_RETURN_IF_ERROR(answer.error);
    return answers;
  }

  // Tokens a second of all users while all of them decode.
  Result<double> decode_rate(std::int64_t users) {
    PERIGEE_ASSIGN_OR_RETURN(const auto answers, together(users, [&](std::size_t user) {
                               return answer_of(*model_.engine, ids(16, 1000 + user), arguments_.output,
                                                fmt::format("user {}", user));
                             }));
    double begin = 0;
    double end = 1e300;
    for (const UserAnswer& answer : answers) {
      begin = std::max(begin, answer.at.front());
      end = std::min(end, answer.at.back());
    }
    std::int64_t tokens = 0;
    for (const UserAnswer& answer : answers) {
      tokens += std::count_if(answer.at.begin(), answer.at.end(), [&](double at) { return at > begin && at <= end; });
    }
    return static_cast<double>(tokens) / (end - begin);
  }

  Status batch() {
    PERIGEE_ASSIGN_OR_RETURN(const double one, decode_rate(1));
    PERIGEE_ASSIGN_OR_RETURN(const double all, decode_rate(arguments_.users));
    say("batch", {{"users", arguments_.users}, {"one", one}, {"all", all}},
        fmt::format("decode: 1 user {:.2f} tokens/s, {} users {:.2f} tokens/s = {:.2f}x", one, arguments_.users, all,
                    all / one));
    return {};
  }

  Status gaps() {
    const std::vector<TokenId> common = ids(arguments_.shared, 2);
    std::vector<std::vector<TokenId>> histories;
    const Clock::time_point start = Clock::now();
    for (std::int64_t user = 0; user < arguments_.users; ++user) {
      histories.push_back(joined(common, ids(arguments_.history - arguments_.shared, 3000 + user)));
      const UserAnswer answer = answer_of(*model_.engine, histories.back(), 1, "team");
      if (!answer.error.ok()) return answer.error;
    }
    const double cold = std::chrono::duration<double>(Clock::now() - start).count();

    std::vector<double> between;
    std::vector<double> first;
    std::mutex mutex;
    PERIGEE_ASSIGN_OR_RETURN(
        const auto answers, together(arguments_.users, [&](std::size_t user) {
          std::vector<TokenId> history = histories[user];
          UserAnswer answer;
          for (std::int64_t turn = 0; turn < arguments_.turns; ++turn) {
            // Users do not speak at once: a turn's prompt then meets the others' decodes.
            std::this_thread::sleep_for(std::chrono::milliseconds(400 * static_cast<std::int64_t>(user)));
            history = joined(history, ids(kNewTokens, 4000 + 100 * user + static_cast<std::uint64_t>(turn)));
            answer = answer_of(*model_.engine, history, arguments_.output, "team");
            if (!answer.error.ok()) return answer;
            history = joined(history, answer.tokens);
            const std::lock_guard lock(mutex);
            first.push_back(answer.at.front());
            for (std::size_t i = 1; i < answer.at.size(); ++i) between.push_back(answer.at[i] - answer.at[i - 1]);
          }
          return answer;
        }));
    const double median = quantile(between, 0.5);
    const double p99 = quantile(between, 0.99);
    say("gaps",
        {{"users", arguments_.users},
         {"history", arguments_.history},
         {"shared", arguments_.shared},
         {"histories_s", cold},
         {"tokens", between.size() + first.size()},
         {"first_p50_s", quantile(first, 0.5)},
         {"first_max_s", quantile(first, 1)},
         {"gap_p50_s", median},
         {"gap_p99_s", p99},
         {"gap_max_s", quantile(between, 1)}},
        fmt::format(
            "{} users with {} tokens each ({} shared; computed in {:.1f} s), {} turns: first token median {:.3f} s, "
            "worst {:.3f} s; between tokens median {:.1f} ms, p99 {:.1f} ms = {:.2f}x, worst {:.1f} ms",
            answers.size(), arguments_.history, arguments_.shared, cold, arguments_.turns, quantile(first, 0.5),
            quantile(first, 1), 1e3 * median, 1e3 * p99, p99 / median, 1e3 * quantile(between, 1)));
    return {};
  }

  const UsersArguments& arguments_;
  LoadedModel model_;
  Json report_ = Json::object();
};

}  // namespace

void register_bench_users(CLI::App& bench, int& exit_code) {
  CLI::App* command = bench.add_subcommand("users", "Several users of one engine: warm turns, batches, gaps");
  const auto arguments = std::make_shared<UsersArguments>();
  add_engine_flags(*command, arguments->engine);
  command->add_option("--parts", arguments->parts, "warm, batch, gaps")
      ->delimiter(',')
      ->check(CLI::IsMember({"warm", "batch", "gaps"}))
      ->capture_default_str();
  command->add_option("--prompt", arguments->prompt, "Tokens of the history of `warm`")
      ->check(CLI::Range(256, 1 << 20))
      ->capture_default_str();
  command->add_option("--users", arguments->users, "Users")->check(CLI::Range(1, 256))->capture_default_str();
  command->add_option("--history", arguments->history, "Tokens of each user's history")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command->add_option("--shared", arguments->shared, "Of these, tokens that all histories begin with")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  command->add_option("--turns", arguments->turns, "Turns a user")->check(CLI::Range(1, 1000))->capture_default_str();
  command->add_option("--output", arguments->output, "Tokens of an answer")
      ->check(CLI::Range(2, 65536))
      ->capture_default_str();
  command->add_flag("--json", arguments->json, "Machine-readable report");
  command->callback([arguments, &exit_code] {
    if (arguments->shared > arguments->history) {
      exit_code = command_failed("bench users", invalid_argument("--shared: expected at most --history ({}), found {}",
                                                                 arguments->history, arguments->shared));
      return;
    }
    const Status status = UsersBench(*arguments).run();
    exit_code = status.ok() ? 0 : command_failed("bench users", status);
  });
}

}  // namespace perigee::cli
