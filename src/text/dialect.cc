#include "text/dialect.h"

namespace perigee {
namespace {

constexpr std::string_view kKimiSystem = "You are Kimi, an AI assistant created by Moonshot AI.";

}  // namespace

const Dialect kDialectK3{
    .name = "k3",
    .specials = SpecialTable::kK3,
    .format = PromptFormat::kXtml,
    .tools = ToolText::kSortedJson,
    .think = ThinkStyle::kElement,
    .default_system = "",
    .after_default_system = "",
    .after_image = "",
    .image_size = true,
    .control_messages = true,
    .image_patches = 65'536,
    .default_effort = "max",
    .temperature = 1.0,
    .top_p = 0.95,
};

const Dialect kDialectK2Instruct{
    .name = "k2_instruct",
    .specials = SpecialTable::kK2,
    .format = PromptFormat::kImTurns,
    .tools = ToolText::kPythonJson,
    .think = ThinkStyle::kNone,
    .default_system = kKimiSystem,
    .after_default_system = "\n",
    .after_image = "",
    .image_size = false,
    .control_messages = false,
    .image_patches = 16'384,
    .default_effort = "",
    .temperature = 0.6,
    .top_p = 0.95,
};

const Dialect kDialectK2Thinking{
    .name = "k2_thinking",
    .specials = SpecialTable::kK2,
    .format = PromptFormat::kImTurns,
    .tools = ToolText::kPythonJson,
    .think = ThinkStyle::kAfterLastReply,
    .default_system = kKimiSystem,
    .after_default_system = "",
    .after_image = "",
    .image_size = false,
    .control_messages = false,
    .image_patches = 16'384,
    .default_effort = "",
    .temperature = 1.0,
    .top_p = 0.95,
};

const Dialect kDialectK25{
    .name = "k25",
    .specials = SpecialTable::kK2,
    .format = PromptFormat::kImTurns,
    .tools = ToolText::kTypeScript,
    .think = ThinkStyle::kPrefilled,
    .default_system = "",
    .after_default_system = "",
    .after_image = "\n",
    .image_size = false,
    .control_messages = false,
    .image_patches = 16'384,
    .default_effort = "",
    .temperature = 1.0,
    .top_p = 0.95,
};

const Dialect kDialectKimiLinear{
    .name = "kimi_linear",
    .specials = SpecialTable::kK2,
    .format = PromptFormat::kImTurns,
    .tools = ToolText::kPythonJson,
    .think = ThinkStyle::kNone,
    .default_system = "",
    .after_default_system = "",
    .after_image = "",
    .image_size = false,
    .control_messages = false,
    .image_patches = 0,
    .default_effort = "",
    .temperature = 1.0,
    .top_p = 0.95,
};

const Dialect* find_dialect(std::string_view name) {
  for (const Dialect* dialect :
       {&kDialectK3, &kDialectK2Instruct, &kDialectK2Thinking, &kDialectK25, &kDialectKimiLinear}) {
    if (dialect->name == name) return dialect;
  }
  return nullptr;
}

const Dialect& dialect_of_family(std::string_view family) {
  return family == "kimi_linear" ? kDialectKimiLinear : kDialectK3;
}

}  // namespace perigee
