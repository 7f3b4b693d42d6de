#compdef sluice
# Completes commands, flags and their values. Into ~/.zshrc, after compinit: source <(sluice completion zsh)
_sluice() {
  local -a found
  case ${words[CURRENT-1]} in (--config | -c | --output | --against | --token) _default; return ;; esac
  found=(${(f)"$(SHELL=zsh sluice --get-yargs-completions "${(@)words[1,CURRENT]}" 2>/dev/null)"})
  if (( ${#found} )); then
    _describe 'values' found
  else
    _default
  fi
}
compdef _sluice sluice
