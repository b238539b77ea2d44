#include "text/grammar_library.h"

#include <llguidance.h>

#include <algorithm>
#include <array>

#include "text/utf8.h"

namespace perigee {
namespace {

constexpr std::size_t kMaxMessage = 300;

constexpr LlgParserLimits kLimits = {
    .max_items_in_row = 2'000,
    .initial_lexer_fuel = 1'000'000,  // about 20 ms
    .step_lexer_fuel = 200'000,       // about 15 ms
    .step_max_items = 50'000,
    .max_lexer_states = 250'000,
    .max_grammar_size = 500'000,
    .precompute_large_lexemes = false,
    .verbose_errors = false,
};

LlgTokenizer* make_tokenizer(const Tokenizer& tokenizer) {
  std::vector<std::uint32_t> lengths;
  std::string bytes;
  lengths.reserve(static_cast<std::size_t>(tokenizer.vocab()));
  for (TokenId id = 0; id < tokenizer.vocab(); ++id) {
    const std::size_t before = bytes.size();
    // A leading 0xFF marks a special: no grammar text can match it.
    if (tokenizer.is_special(id)) bytes += '\xFF';
    bytes += tokenizer.bytes(id);
    lengths.push_back(static_cast<std::uint32_t>(bytes.size() - before));
  }
  LlgTokenizerInitV2 init = {};
  init.struct_size = sizeof(init);
  init.vocab_size = static_cast<std::uint32_t>(tokenizer.vocab());
  init.tok_eos = static_cast<LlgToken>(tokenizer.special(Special::kEndOfMessage));
  init.token_lens = lengths.data();
  init.token_bytes = reinterpret_cast<const std::uint8_t*>(bytes.data());
  init.use_approximate_greedy_tokenize_fn = true;  // only used to fast-forward, which is off
  std::array<char, 256> message = {};
  return llg_new_tokenizer_v2(&init, message.data(), message.size());
}

const char* language_name(GrammarLanguage language) {
  switch (language) {
    case GrammarLanguage::kJsonSchema:
      return "json";
    case GrammarLanguage::kRegex:
      return "regex";
    default:
      return "lark";
  }
}

}  // namespace

GrammarVocabulary::GrammarVocabulary(const Tokenizer& tokenizer)
    : tokenizer_(tokenizer), handle_(make_tokenizer(tokenizer), llg_free_tokenizer) {
  for (TokenId id = 0; id < tokenizer.first_special(); ++id) {
    const std::string_view bytes = tokenizer.bytes(id);
    if (bytes.empty()) continue;
    by_bytes_.push_back(id);
    if (std::all_of(bytes.begin(), bytes.end(), [](char c) { return c >= '0' && c <= '9'; })) {
      digit_tokens_.push_back(id);
    }
  }
  std::sort(by_bytes_.begin(), by_bytes_.end(),
            [&](TokenId a, TokenId b) { return tokenizer_.bytes(a) < tokenizer_.bytes(b); });
}

GrammarVocabulary::Found GrammarVocabulary::find_prefix(std::string_view text) const {
  auto at = std::lower_bound(by_bytes_.begin(), by_bytes_.end(), text,
                             [&](TokenId id, std::string_view key) { return tokenizer_.bytes(id) < key; });
  Found found;
  if (at != by_bytes_.end() && tokenizer_.bytes(*at) == text) found.id = *at++;
  found.extends = at != by_bytes_.end() && tokenizer_.bytes(*at).starts_with(text);
  return found;
}

GrammarMatcher::GrammarMatcher(std::shared_ptr<const GrammarVocabulary> vocabulary, LlgMatcher* handle)
    : vocabulary_(std::move(vocabulary)), handle_(handle, llg_free_matcher) {}

Result<GrammarMatcher> GrammarMatcher::compile(std::shared_ptr<const GrammarVocabulary> vocabulary,
                                               GrammarLanguage language, const std::string& text) {
  if (vocabulary->handle() == nullptr) return make_error(StatusCode::kInternal, "the grammar vocabulary is not usable");
  if (text.find('\0') != std::string::npos) return invalid_argument("the text holds a NUL byte");
  LlgConstraintInit init = {};
  llg_constraint_init_set_defaults(&init, vocabulary->handle());
  init.log_stderr_level = 0;
  init.log_buffer_level = 0;
  init.limits = kLimits;
  GrammarMatcher matcher(std::move(vocabulary), llg_new_matcher(&init, language_name(language), text.c_str()));
  if (llg_matcher_is_error(matcher.handle_.get())) {
    const char* message = llg_matcher_get_error(matcher.handle_.get());
    std::string line = message == nullptr ? "unknown error" : message;
    if (line.size() > kMaxMessage) line.resize(kMaxMessage);
    std::replace(line.begin(), line.end(), '\n', ' ');
    return invalid_argument("{}", valid_utf8(line));
  }
  return matcher;
}

GrammarMatcher GrammarMatcher::clone() const {
  return {vocabulary_, llg_clone_matcher(handle_.get())};
}

bool GrammarMatcher::mask(std::vector<std::uint32_t>& allowed) {
  const bool good = llg_matcher_compute_mask(handle_.get()) == 0;
  const std::uint32_t* mask = good ? llg_matcher_get_mask(handle_.get()) : nullptr;
  if (mask == nullptr) {
    std::fill(allowed.begin(), allowed.end(), 0);
    return false;
  }
  const std::size_t words = std::min(allowed.size(), llg_matcher_get_mask_byte_size(handle_.get()) / sizeof(*mask));
  for (std::size_t i = 0; i < words; ++i) allowed[i] &= mask[i];
  return true;
}

bool GrammarMatcher::accept(TokenId token) {
  return llg_matcher_consume_token(handle_.get(), static_cast<std::uint32_t>(token)) == 0;
}

bool GrammarMatcher::accepting() const {
  return llg_matcher_is_accepting(handle_.get());
}

}  // namespace perigee
