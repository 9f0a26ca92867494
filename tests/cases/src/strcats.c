// strcats SECS [good]: a CSV text built by strcat, which looks for its end at each append; good: by a pointer to the end
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
static double now(void){struct timespec t; clock_gettime(CLOCK_MONOTONIC,&t); return t.tv_sec+t.tv_nsec/1e9;}
static char text[1<<20];
__attribute__((noinline)) static long build_csv(int rows,int good){ char field[32]; char *at=text; text[0]=0; for(int i=0;i<rows;i++){ int n=snprintf(field,sizeof field,"%d,",i*7); if(good){ memcpy(at,field,n+1); at+=n; } else strcat(text,field); } return good?at-text:(long)strlen(text); }
int main(int c,char**v){ double secs=atof(v[1]); int good=c>2; double end=now()+secs; long n=0; while(now()<end){ if(build_csv(6000,good)<10) return 1; n++; } printf("%.0f ops/s\n",n/secs); return 0; }
