#include "chat_template/syntax/callable.h"

#include <algorithm>

#include "files/printable.h"

namespace heddle::chat_template {

void Call::bind(const Callable& callable) {
  callable_ = &callable;
  if (callable.is_variadic) return;
  const auto* end = std::find(callable.parameters.begin(), callable.parameters.end(), "");
  by_parameter_.assign(static_cast<size_t>(end - callable.parameters.begin()), nullptr);
  HEDDLE_CHECK(raw.positional.size() <= by_parameter_.size(), callable.name, " takes at most ",
               by_parameter_.size(), " arguments, ", raw.positional.size(), " are given");
  for (size_t i = 0; i < raw.positional.size(); ++i) by_parameter_[i] = &raw.positional[i];
  for (const auto& [name, value] : raw.named) {
    const auto* parameter = std::find(callable.parameters.begin(), end, name);
    HEDDLE_CHECK(parameter != end, callable.name, " takes no argument ", files::quote(name));
    const Value*& place =
        by_parameter_[static_cast<size_t>(parameter - callable.parameters.begin())];
    HEDDLE_CHECK(place == nullptr, callable.name, " is given the argument ", files::quote(name),
                 " twice");
    place = &value;
  }
  for (size_t i = 0; i < static_cast<size_t>(callable.required); ++i) {
    HEDDLE_CHECK(by_parameter_[i] != nullptr, callable.name, " needs the argument '",
                 callable.parameters[i], "'");
  }
}

const Value* Call::some(size_t i) const {
  return arg(i) == nullptr || arg(i)->is_none() ? nullptr : arg(i);
}

int64_t Call::integer(size_t i, int64_t otherwise) const {
  if (arg(i) == nullptr) return otherwise;
  HEDDLE_CHECK(arg(i)->is_integral(), callable_->name, " takes an integer as '",
               callable_->parameters[i], "', ", arg(i)->type_name(), " is given");
  return arg(i)->as_int();
}

const std::string& Call::text(size_t i) const {
  HEDDLE_CHECK(arg(i)->is_string(), callable_->name, " takes a string as '",
               callable_->parameters[i], "', ", arg(i)->type_name(), " is given");
  return arg(i)->bytes();
}

const Callable* find_in(Callables table, std::string_view name) {
  const auto found =
      std::find_if(table.begin(), table.end(), [&](const Callable& c) { return c.name == name; });
  return found == table.end() ? nullptr : &*found;
}

const Callable* find_filter(std::string_view name) {
  for (const Callables table :
       {text_filters(), number_filters(), sequence_filters(), higher_filters(), format_filters()}) {
    if (const Callable* filter = find_in(table, name)) return filter;
  }
  return nullptr;
}
const Callable* find_test(std::string_view name) { return find_in(tests(), name); }
const Callable* find_function(std::string_view name) { return find_in(functions(), name); }

}  // namespace heddle::chat_template
