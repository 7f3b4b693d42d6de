# Completes commands, flags and their values. Into ~/.bashrc: source <(sluice completion bash)
_sluice() {
  local words=("${COMP_WORDS[@]:0:COMP_CWORD+1}")
  local found
  # No words are found for the value of these flags, so that the shell completes files.
  case ${COMP_WORDS[COMP_CWORD-1]} in --config | -c | --output | --against | --token) return ;; esac
  # The shell completes files for a word that is not a flag.
  case "${COMP_WORDS[1]} ${COMP_WORDS[COMP_CWORD]}" in
    *" -"*) ;;
    "completion "*)
      ((COMP_CWORD > 1)) && COMPREPLY=($(compgen -W "bash zsh fish" -- "${COMP_WORDS[COMP_CWORD]}")) && return ;;
    "replay "*) ((COMP_CWORD > 1)) && return ;;
  esac
  found=$(SHELL=bash sluice --get-yargs-completions "${words[@]}" 2>/dev/null)
  COMPREPLY=($(compgen -W "$found" -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o bashdefault -o default -F _sluice sluice
