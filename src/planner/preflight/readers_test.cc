// The readers of preflight: words of shell scripts, located JSON and YAML, and what they refuse.
#include <gtest/gtest.h>

#include <string>

#include "planner/preflight/flag_table.h"
#include "planner/preflight/launch_set.h"
#include "planner/preflight/shell.h"

namespace perigee::planner {
namespace {

struct Ran {
  std::vector<std::vector<Word>> commands;
  Environment environment;
  ParseFailure syntax, limits;

  std::string line(std::size_t index) const {
    std::string out;
    for (const Word& word : commands.at(index)) {
      if (!out.empty()) out += '|';
      for (const char c : word.text.value) out += c == kUnknown ? '?' : c;
    }
    return out;
  }
};

Ran run(const std::string& script) {
  Ran out;
  const ShellList list = parse_shell(Text::of_lines(script, 1), out.syntax);
  ShellHandlers handlers;
  handlers.command = [&](const ShellCommand& command) { out.commands.push_back(command.words); };
  evaluate_shell(list, handlers, out.environment, out.limits);
  return out;
}

TEST(Shell, WordsQuotesAndContinuations) {
  const Ran ran = run("a 'b c' \"d e\" f\\ g \\\n  h'i'\"j\" '' # comment\nk;l&&m|n\n");
  EXPECT_EQ(ran.line(0), "a|b c|d e|f g|hij|");
  EXPECT_EQ(ran.commands[0][4].line(), 2);
  EXPECT_EQ(ran.line(1), "k");
  EXPECT_EQ(ran.commands.size(), 5U);
}

TEST(Shell, VariablesArraysAndLoops) {
  const Ran ran =
      run("A=1\nB=\"x y\"\nL=(p 'q r')\nL+=(s)\n"
          "go $A \"$B\" $B ${A}z ${C:-fallback} \"${L[@]}\" ${#L[@]} $UNSET $1\n"
          "devs=\"\"; for i in $(seq 0 2); do devs=\"$devs --d$i\"; done\nrun $devs {a,b}{x} {1..3} $((A + 2*3))\n");
  EXPECT_EQ(ran.line(0), "go|1|x y|x|y|1z|fallback|p|q r|s|?|?|?");
  EXPECT_TRUE(ran.commands[0].back().open);
  EXPECT_EQ(ran.commands[0][7].line(), 3);
  EXPECT_EQ(ran.line(1).substr(0, 15), "run|--d0|--d1|-");
  EXPECT_EQ(ran.line(1).substr(ran.line(1).size() - 7), "1|2|3|7");
}

TEST(Shell, ExportsHeredocsAndBranches) {
  const Ran ran =
      run("export X=1 Y='a b'\nZ=2\nexport Z\nif test -n \"$Q\"; then X=5; else export W=3; fi\n"
          "cat > f.json <<'EOF'\n{\"a\": $X}\nEOF\necho $X\ncase $M in a|b) P=1;; *) P=2 ;; esac\nuse $P\n"
          "f() { call $1 $Z; }\nf 7\n");
  EXPECT_EQ(ran.environment.at("Y").text.value, "a b");
  EXPECT_EQ(ran.environment.at("Y").line, 1);
  EXPECT_EQ(ran.environment.at("Z").text.value, "2");
  EXPECT_TRUE(ran.environment.at("X").text.unknown()) << "set in one branch only";
  EXPECT_EQ(ran.line(ran.commands.size() - 2), "use|?");
  EXPECT_EQ(ran.line(ran.commands.size() - 1), "call|7|2");
}

TEST(Shell, LinesOfJsonInsideWords) {
  const Ran ran = run("PORT=1\nvllm serve m \\\n  --x '{\"a\":1,\n    \"b\":\"'$PORT'\",\n    \"c\":2}'\n");
  ParseFailure failure;
  const ValuePtr json = parse_located_json(ran.commands[0].back().text, failure);
  ASSERT_NE(json, nullptr) << failure.message;
  EXPECT_EQ(json->member("a")->line, 3);
  EXPECT_EQ(json->member("b")->line, 4);
  EXPECT_EQ(json->find("b")->integer(), 1);
  EXPECT_EQ(json->member("c")->line, 5);
}

TEST(Shell, NothingIsExecutedAndNothingExplodes) {
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += "$(";
  for (const std::string& script :
       {deep, std::string(200000, '{'), std::string(200000, '('), std::string("if ") + std::string(100000, ';'),
        std::string("a=x; for i in {1..9999}; do for j in {1..9999}; do a=$a$a; done; done"), std::string("a='"),
        std::string("cat <<EOF\nx"), std::string("f() { f; f; }; f"), std::string("case x in"),
        std::string("x=$((1/0)) y=$((9223372036854775807+1)) go $x $y")}) {
    const Ran ran = run(script);
    (void)ran;
  }
  std::string doubling = "a=xxxxxxxxxxxxxxxx\n";
  for (int i = 0; i < 60; ++i) doubling += "a=\"$a$a\"\n";
  EXPECT_FALSE(run(doubling).limits.message.empty());
  EXPECT_EQ(run("a='\nb").syntax.line, 1);
}

TEST(Yaml, KnowsLinesAndDuplicates) {
  ParseFailure failure;
  const auto documents =
      parse_located_yaml("a: 1\nb: {c: \"2\", d: [x, y]}\na: 3\n---\ns: >-\n  one\n  two three\n  four\n", failure);
  ASSERT_EQ(documents.size(), 2U) << failure.message;
  EXPECT_EQ(documents[0]->find("a")->integer(), 1);
  ASSERT_EQ(documents[0]->duplicates.size(), 1U);
  EXPECT_EQ(documents[0]->duplicates[0].line, 3);
  EXPECT_EQ(find_path(documents[0].get(), {"b", "d"})->items[1]->str(), "y");
  const Text& text = documents[1]->find("s")->text;
  EXPECT_EQ(text.value, "one two three four");
  EXPECT_EQ(text.line_at(text.value.find("two")), 7);
  EXPECT_EQ(text.line_at(text.value.find("four")), 8);
}

TEST(Yaml, HostileTextIsRefused) {
  std::string bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n";
  for (int i = 1; i < 12; ++i) {
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [";
    for (int k = 0; k < 9; ++k) bomb += (k > 0 ? ",*a" : "*a") + std::to_string(i - 1);
    bomb += "]\n";
  }
  const LaunchSet deployment = read_launch_set({{"bomb.yaml", bomb}}, {});
  EXPECT_TRUE(deployment.launches.empty());
  for (const std::string& text : {std::string(100000, '['), std::string("a: &x [*x]\n"), std::string("{a: b"),
                                  std::string("a:\n\t- b\n"), std::string(5000, '-').insert(1, " ")}) {
    ParseFailure failure;
    (void)parse_located_yaml(text, failure);
  }
  std::string dashes;
  for (int i = 0; i < 100000; ++i) dashes += "- ";
  ParseFailure failure;
  (void)parse_located_yaml(dashes, failure);
  EXPECT_NE(failure.message.find("deeper"), std::string::npos);
  std::string stairs;
  for (int i = 0; i < 300; ++i) stairs += std::string(static_cast<std::size_t>(i), ' ') + "a:\n";
  failure = {};
  (void)parse_located_yaml(stairs, failure);
  EXPECT_NE(failure.message.find("deeper"), std::string::npos);
}

TEST(Json, MistakesNameTheLine) {
  const auto message = [](const std::string& text) {
    ParseFailure failure;
    const ValuePtr value = parse_located_json(Text::of_lines(text, 1), failure);
    EXPECT_EQ(value, nullptr) << text;
    return std::to_string(failure.line) + ": " + failure.message;
  };
  EXPECT_EQ(message("{\"a\": 1,\n \"b\" 2}"), "2: expected \":\" after \"b\", found \"2}\"");
  EXPECT_EQ(message("{\n}\nx"), "3: text after the end of the JSON value");
  for (const std::string& text :
       {std::string(1000, '['), std::string("{\"a\":01}"), std::string("{'a':1}"), std::string("[1,]"),
        std::string("\"a"), std::string(""), std::string("{\"a\":True}"), std::string("\"\\x\"")}) {
    EXPECT_FALSE(message(text).empty());
  }
}

TEST(FlagTable, ResolvesAsTheParsersDo) {
  const auto table = flag_table("vllm-0.30.0");
  ASSERT_TRUE(table.ok()) << table.status().message();
  EXPECT_EQ((*table)->resolve("-tp").name, "--tensor-parallel-size");
  EXPECT_EQ((*table)->resolve("--max_num-seqs").name, "--max-num-seqs");
  EXPECT_TRUE((*table)->resolve("--no-enable-prefix-caching").negated);
  EXPECT_EQ((*table)->resolve("--compilation-config.cudagraph_mode").key, "cudagraph_mode");
  EXPECT_EQ((*table)->resolve("--tensor-parallel-siz").name, "--tensor-parallel-size");
  EXPECT_EQ((*table)->resolve("--disable-log-requests").spec, nullptr);
  EXPECT_EQ((*table)->nearest_flag("--tensor-paralel-size"), "--tensor-parallel-size");
  EXPECT_FALSE(flag_table("vllm-9").ok());
  EXPECT_FALSE(parse_flag_table("{\"package\": 1", "x").ok());
  EXPECT_EQ(flag_table_names().size(), 6U);
  EXPECT_EQ(edit_distance("abcd", "abdc", 3), 1);
  EXPECT_EQ(human_integer("32k"), 32000);
  EXPECT_EQ(human_integer("32K"), 32768);
  EXPECT_EQ(human_integer("1.5k"), 1500);
  EXPECT_FALSE(human_integer("9999999999999999999").has_value());
  EXPECT_FALSE(human_integer("K").has_value());
}

}  // namespace
}  // namespace perigee::planner
