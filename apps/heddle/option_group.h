#pragma once

#include <CLI/CLI.hpp>

namespace heddle::app {

/// Declares options under one heading of a command's help. `type` is what help shows of a value:
/// "FILE"; empty: nothing.
class OptionGroup {
 public:
  OptionGroup(CLI::App& command, const char* name) : command_(command), name_(name) {}

  /// A value that is not given by default.
  template <class T>
  CLI::Option* value(const char* option, T& to, const char* type, const char* help) const {
    return in_group(command_.add_option(option, to, help), type);
  }
  /// Values of an option that can be repeated.
  template <class T>
  CLI::Option* list(const char* option, T& to, const char* type, const char* help) const {
    return value(option, to, type, help)->allow_extra_args(false);
  }
  /// A number from low to high, whose default is what it is now.
  template <class T, class Bound>
  CLI::Option* number(const char* option, T& to, Bound low, Bound high, const char* type,
                      const char* help) const {
    return value(option, to, type, help)->capture_default_str()->check(CLI::Range(low, high));
  }
  /// read(text) takes the value; `shown` is its default.
  template <class Read>
  CLI::Option* text(const char* option, const Read& read, const char* shown, const char* type,
                    const char* help) const {
    return in_group(command_.add_option_function<std::string>(option, read, help), type)
        ->default_str(shown);
  }
  CLI::Option* flag(const char* option, bool& to, const char* help) const {
    return command_.add_flag(option, to, help)->group(name_);
  }

 private:
  CLI::Option* in_group(CLI::Option* option, const char* type) const {
    if (*type != '\0') option->type_name(type);
    return option->group(name_);
  }

  CLI::App& command_;
  const char* name_;
};

}  // namespace heddle::app
