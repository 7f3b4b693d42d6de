#compdef sluice
# Completes commands, flags and their values. Into ~/.zshrc, after compinit: source <(sluice completion zsh)
_sluice() {
  local -a found
  case ${words[CURRENT-1]} in (--config | -c | --output | --against | --token) _default; return ;; esac
  if ((CURRENT > 2)) && [[ ${words[CURRENT]} != -* ]]; then
    case ${words[2]} in
      (completion) _values shell bash zsh fish; return ;;
      (replay) _default; return ;;
    esac
  fi
  found=(${(f)"$(SHELL=zsh sluice --get-yargs-completions "${(@)words[1,CURRENT]}" 2>/dev/null)"})
  if (( ${#found} )); then
    _describe 'values' found
  else
    _default
  fi
}
compdef _sluice sluice
