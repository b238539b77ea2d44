// Internal to extract.cc, launch_reader.cc and containers.cc: turns files into a LaunchSet.
#pragma once

#include <set>

#include "planner/preflight/launch_set.h"

namespace perigee::planner {

class Extractor {
 public:
  Extractor(const std::vector<InputFile>& files, const ExtractTables& tables, LaunchSet& out);
  void run();

 private:
  // extract.cc
  void read(const InputFile& file);
  void read_script(const Text& script, const Environment& environment, int container, int depth);
  void read_json(const InputFile& file);
  void command(const ShellCommand& command, int container, int depth);
  void words(const std::vector<Word>& words, const ShellCommand& command, int container, int depth);
  bool launch_at(const std::vector<Word>& words, std::size_t at, const ShellCommand& command, int container, int depth);
  void problem(int line, std::string message);

  // launch_reader.cc
  void add_launch(LaunchKind kind, const std::vector<Word>& words, std::size_t first, const ShellCommand& command,
                  int container, const std::string& program);
  void read_arguments(Launch& launch, const std::vector<Word>& words, std::size_t first) const;
  void read_configs(Launch& launch) const;

  // containers.cc
  void docker_run(const std::vector<Word>& words, std::size_t first, const ShellCommand& command, int depth);
  void read_yaml(const InputFile& file);
  void yaml_value(const ValuePtr& value, std::int64_t group, int group_line, int depth);
  void duplicate_keys(const ValuePtr& value, int depth);
  void compose_service(const Value& service);
  void pod(const Value& spec, std::int64_t group, int group_line);
  void pod_container(const Value& spec, const Value& item, std::int64_t group, int group_line);
  bool engine_config(const Value& root);
  void container_command(const std::vector<const Value*>& parts, int container, bool compose);
  void environment_of(const Value* value, Container& container) const;

  const std::vector<InputFile>& files_;
  const ExtractTables& tables_;
  LaunchSet& out_;
  std::string file_;
  std::size_t visited_ = 0;
};

// The last part of a path.
std::string base_name(std::string_view path);

}  // namespace perigee::planner
